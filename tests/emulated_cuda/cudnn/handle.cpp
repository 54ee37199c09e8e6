#include "emulated_cuda/cudnn/handle.hpp"

#include "emulated_cuda/api.hpp"

using emulated_cuda::cudnn_settings;

namespace emulated_cuda {

CudnnSettings& cudnn_settings() {
  static CudnnSettings settings;
  return settings;
}

bool load_code(std::size_t bytes) {
  void* code = nullptr;
  return cudaMalloc(&code, bytes) == cudaSuccess;
}

}  // namespace emulated_cuda

extern "C" {

/// For tests: "91801" for 9.18.1.
void emulated_cudnn_set_version(std::size_t version) {
  cudnn_settings().version = version;
}
void emulated_cudnn_set_more_workspace(std::size_t bytes_a_head) {
  cudnn_settings().more_workspace_bytes = bytes_a_head;
}

std::size_t cudnnGetVersion() {
  return cudnn_settings().version;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS           ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED"
                                                  : "CUDNN_STATUS_BAD_PARAM";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (emulated_cuda::failure_of("cudnnCreate") != cudaSuccess ||
      !emulated_cuda::load_code(4 * emulated_cuda::kMiB)) {
    return CUDNN_STATUS_NOT_INITIALIZED;
  }
  *handle = new CudnnHandle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) { return CUDNN_STATUS_BAD_PARAM; }
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
}

#include <array>
#include <utility>

#include "emulated_cuda/api.hpp"

namespace emulated_cuda {
namespace {

struct Text {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define TEXT(error, text) \
  Text {                  \
    error, #error, text   \
  }
constexpr std::array kTexts{
    TEXT(cudaSuccess, "no error"),
    TEXT(cudaErrorInvalidValue, "invalid argument"),
    TEXT(cudaErrorMemoryAllocation, "out of memory"),
    TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TEXT(cudaErrorInsufficientDriver, "CUDA driver version is insufficient"),
    TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TEXT(cudaErrorNotReady, "device not ready"),
    TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TEXT(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error in capture"),
    TEXT(cudaErrorStreamCaptureMerge, "operation would merge two captures"),
    TEXT(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    TEXT(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work"),
    TEXT(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capture"),
    TEXT(cudaErrorGraphExecUpdateFailure, "the graph update was not performed"),
};
#undef TEXT

const Text* text_of(cudaError_t error) {
  for (const Text& text : kTexts) {
    if (text.error == error) { return &text; }
  }
  return nullptr;
}

constinit thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t report(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) { last_error = status; }
  return status;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  const Text* const text = text_of(error);
  return text == nullptr ? "unrecognized error code" : text->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const Text* const text = text_of(error);
  return text == nullptr ? "unrecognized error code" : text->text;
}

#include "tessera/base/error.hpp"
#include "torch/cuda_stream.hpp"

namespace tessera::torch {

void CudaStream::require() {
  throw ConfigError{
      "a libtorch module cannot be sharded on CUDA devices: this build found no CUDA part of "
      "libtorch (libc10_cuda, libtorch_cuda, their headers and those of the CUDA toolkit); build "
      "with one that has it (-DTESSERA_TORCH_ROOT=...), or use `device` cpu"};
}

CudaStream::CudaStream(World& /*world*/) : stream_{nullptr} {
  require();
}

CudaStream::~CudaStream() = default;

}  // namespace tessera::torch

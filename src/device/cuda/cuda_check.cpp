#include "device/cuda/cuda_check.hpp"

#include <fmt/format.h>

#include <string_view>

namespace tessera::cuda {
namespace {

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

void check(cudaError_t status, const char* call, CallSite where) {
  if (status == cudaSuccess) { return; }
  (void)cudaGetLastError();  // an error that is not sticky must not show up at the next launch
  throw DeviceError{fmt::format("{} failed: {} ({}) at {}:{}", call, cudaGetErrorString(status),
                                cudaGetErrorName(status), file_name(where.file), where.line)};
}

void use_device(int ordinal) {
  check(cudaSetDevice(ordinal), "cudaSetDevice");
}

}  // namespace tessera::cuda

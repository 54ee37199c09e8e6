#include "device/cuda/cuda_look.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_nvml.hpp"
#include "device/cuda/cuda_use.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::cuda {
namespace {

std::string describe(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  std::string text =
      fmt::format("{} ({}, compute capability {}.{})", properties.name,
                  format_bytes(properties.totalGlobalMem), properties.major, properties.minor);
  if (const auto clocks = nvml::clocks(uuid_of(ordinal))) {
    text += fmt::format(", now at {} MHz, memory {} MHz", clocks->sm_mhz, clocks->memory_mhz);
  }
  return text;
}

std::vector<std::string> libraries() {
  std::vector<std::string> all;
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) {
    all.push_back(fmt::format("CUDA runtime {}.{}", version / 1000, version % 1000 / 10));
  }
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) {
    const auto own = nvml::driver_version();
    all.push_back(fmt::format("driver{} for CUDA {}.{}", own ? " " + *own : "", version / 1000,
                              version % 1000 / 10));
  }
  const auto cublas = static_cast<int>(cublasLtGetVersion());
  all.push_back(
      fmt::format("cuBLASLt {}.{}.{}", cublas / 10000, cublas % 10000 / 100, cublas % 100));
  return all;
}

}  // namespace

int device_count() {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) { return count; }
  if (status == cudaSuccess) { status = cudaErrorNoDevice; }
  (void)cudaGetLastError();
  throw ConfigError{
      fmt::format("no CUDA device can be used: {} ({}); check the driver with "
                  "nvidia-smi, or use the device cpu",
                  cudaGetErrorString(status), cudaGetErrorName(status))};
}

}  // namespace tessera::cuda

extern "C" void tessera_cuda_look(tessera::CudaMachine& machine) {
  using namespace tessera::cuda;
  machine.libraries = libraries();
  try {
    const int count = device_count();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      machine.devices.push_back(describe(ordinal));
    }
  } catch (const tessera::Error& error) { machine.problem = error.what(); }
}

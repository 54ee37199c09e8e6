#include "device/cuda/cuda_look.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_configured.hpp"
#include "device/cuda/cuda_nvml.hpp"
#include "device/cuda/cuda_use.hpp"
#include "device/cuda_architectures.hpp"
#include "device/cuda_library.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::cuda {
namespace {

constexpr int kLeastCublasLt = 120400;  // from the oldest CUDA that this can be built with

device::CudaLibrary cublaslt() {
  return {"cuBLASLt",
          static_cast<int>(cublasLtGetVersion()),
          device::file_of(reinterpret_cast<const void*>(&cublasLtGetVersion)),
          CUBLAS_VERSION,
          configured_files().cublaslt,
          kLeastCublasLt};
}

cudaDeviceProp properties_of(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  return properties;
}

std::string describe(int ordinal) {
  const cudaDeviceProp properties = properties_of(ordinal);
  std::string text =
      fmt::format("{} ({}, compute capability {}.{})", properties.name,
                  format_bytes(properties.totalGlobalMem), properties.major, properties.minor);
  if (const auto clocks = nvml::clocks(uuid_of(ordinal))) {
    text += fmt::format(", now at {} MHz, memory {} MHz", clocks->sm_mhz, clocks->memory_mhz);
  }
  return text;
}

/// Names all devices, if any of them can be used.
void look_at_devices(CudaMachine& machine) {
  bool any = false;
  const int count = device_count();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    machine.devices.push_back(describe(ordinal));
    try {
      require_code(ordinal);
      any = true;
    } catch (const ConfigError& error) {
      machine.devices.back() += ": not usable";
      if (machine.problem.empty()) { machine.problem = error.what(); }
    }
  }
  if (!any) { machine.devices.clear(); }
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
  all.push_back(describe(cublaslt()));
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

void require_code(int ordinal) {
  const cudaDeviceProp properties = properties_of(ordinal);
  if (device::has_code_for(TESSERA_CUDA_COMPILED_FOR, properties.major, properties.minor)) {
    return;
  }
  throw ConfigError{
      fmt::format("this build has no code for CUDA device {}, {} of compute capability {}.{}, but "
                  "for {}: configure with -DTESSERA_CUDA_ARCHITECTURES={}{}-real and build again, "
                  "or choose another device (CUDA_VISIBLE_DEVICES)",
                  ordinal, properties.name, properties.major, properties.minor,
                  TESSERA_CUDA_COMPILED_FOR, properties.major, properties.minor)};
}

}  // namespace tessera::cuda

extern "C" {

void tessera_cuda_look(tessera::CudaMachine& machine) {
  using namespace tessera::cuda;
  machine.libraries = libraries();
  try {
    look_at_devices(machine);
  } catch (const tessera::Error& error) { machine.problem = error.what(); }
}

void tessera_cublaslt_require() {
  tessera::device::require_version(tessera::cuda::cublaslt());
}
}

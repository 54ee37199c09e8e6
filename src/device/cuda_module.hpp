#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/device/device_use.hpp"

namespace tessera {

/// The shared library that holds all of CUDA: device, kernels, NCCL. Opened at the first use, and
/// open until the process ends; a program that never asks loads no CUDA library.
///
/// It is looked for where the environment variable TESSERA_CUDA_MODULE says (a path), else beside
/// the program, in ../lib and ../lib/tessera from there, beside the shared library
/// that this code is in and in tessera/ from there, where it was built or installed, and where the
/// system looks.
///
/// Threads: any.
class CudaModule {
 public:
  /// ConfigError, saying what is missing and what to do, if there is none that fits this build.
  [[nodiscard]] static const CudaModule& get();

  /// What it exports as `name`; the caller knows the type. The module is of this build: it has it.
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  CudaModule();
  [[nodiscard]] void* symbol(const char* name) const;

  std::string path_;
  void* handle_ = nullptr;
};

/// Of this program: source tree and version. The same for all ranks of a job.
[[nodiscard]] std::string_view build_id() noexcept;

/// What a module says that it was built for, and a program must be too: both of one source tree.
inline constexpr const char* kCudaModuleBuild = "tessera_cuda_build";
using CudaModuleBuild = const char*();

/// device/cuda: "tessera_cuda_make_device", "tessera_cuda_use" of one of these,
/// "tessera_cuda_look".
using MakeCudaDevice = Device*(const CudaDeviceOptions& options);
using LookAtCudaDevice = void(const Device& device, DeviceUse& use);
using LookAtCudaMachine = void(CudaMachine& machine);
/// comm/nccl and kernels/attention, of the same type: "tessera_nccl_look", "tessera_cudnn_look".
/// Their libraries' versions, ConfigError: "tessera_cublaslt_require", "tessera_cudnn_require".
using RequireCudaLibrary = void();

}  // namespace tessera

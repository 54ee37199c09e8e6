#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/device/device_use.hpp"

namespace tessera::device {

/// The shared library that holds all of CUDA: device, kernels, NCCL. It is opened at the first use
/// and stays open until the process ends; a program that never asks for it loads no CUDA library.
///
/// The environment variable TESSERA_CUDA_MODULE (a path) names its file. Without it, these places
/// are searched: beside the program, ../lib and ../lib/tessera from there, beside the shared
/// library with this code and tessera/ from there, where it was built or installed, and the
/// system's folders.
///
/// Threads: any.
class CudaModule {
 public:
  /// Throws ConfigError, with what is missing and what to do, if no module fits this build.
  [[nodiscard]] static const CudaModule& get();

  /// Its exported function `name`; the caller knows the type. A module of this build has it.
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

/// Identifies this program's source tree and version. Equal on all ranks of a job.
[[nodiscard]] std::string_view build_id() noexcept;

/// The build that a module was made for; the program's must be the same: both from one source tree.
inline constexpr const char* kCudaModuleBuild = "tessera_cuda_build";
using CudaModuleBuild = const char*();

/// device/cuda: "tessera_cuda_make_device", "tessera_cuda_use" of one of these,
/// "tessera_cuda_look".
using MakeCudaDevice = Device*(const CudaDeviceOptions& options);
using LookAtCudaDevice = void(const Device& device, DeviceUse& use);
using LookAtCudaMachine = void(CudaMachine& machine);
/// comm/nccl and kernels/attention, with the same type: "tessera_nccl_look", "tessera_cudnn_look".
/// Checks of library versions that throw ConfigError: "tessera_cublaslt_require",
/// "tessera_cudnn_require".
using RequireCudaLibrary = void();

}  // namespace tessera::device

#include "device/cuda_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"

namespace tessera::device {
namespace {

constexpr const char* kVariable = "TESSERA_CUDA_MODULE";
constexpr const char* kFile = "libtessera_cuda.so";
constexpr const char* kInstalledBelow = "tessera";  // the folder of libraries

/// The folder of the file with this code: the shared library, or the program.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(static_cast<const void*>(&kFile), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  return std::filesystem::path{info.dli_fname}.parent_path();
}

std::vector<std::string> places() {
  if (const auto path = environment(kVariable)) { return {*path}; }
  std::vector<std::string> all;
  const auto add = [&](const std::filesystem::path& folder) {
    if (!folder.empty()) { all.push_back(folder / kFile); }
  };
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    add(program.parent_path());
    add(program.parent_path().parent_path() / "lib");
    add(program.parent_path().parent_path() / "lib" / kInstalledBelow);
  }
  if (const std::filesystem::path own = own_folder(); !own.empty()) {
    add(own);
    add(own / kInstalledBelow);
  }
  add(TESSERA_CUDA_BUILT_IN);
  add(TESSERA_CUDA_INSTALLED_IN);
  all.emplace_back(kFile);
  return all;
}

/// Throws ConfigError if a library that every device may need is too old. NCCL is checked when a
/// job is joined: a single process does not need it.
void require_libraries(const CudaModule& module) {
  for (const char* name : {"tessera_cublaslt_require", "tessera_cudnn_require"}) {
    module.function<RequireCudaLibrary>(name)();
  }
}

/// The loader's last error.
std::string loader_error() {
  const char* const text = dlerror();  // NOLINT(concurrency-mt-unsafe): one text a thread
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

std::string_view build_id() noexcept {
  return TESSERA_BUILD_ID;
}

CudaModule::CudaModule() {
  const bool named = environment(kVariable).has_value();
  for (const std::string& place : places()) {
    const bool is_path = place.find('/') != std::string::npos;
    if (is_path && !named && !std::filesystem::exists(place)) { continue; }
    handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    path_ = place;
    if (handle_ != nullptr) { break; }
    // If the file exists but cannot be opened, the user must learn why.
    if (is_path) {
      throw ConfigError{fmt::format(
          "the CUDA module {} cannot be opened: {}; `tessera doctor` says what this machine lacks",
          place, loader_error())};
    }
  }
  if (handle_ == nullptr) {
    throw ConfigError{fmt::format(
        "this build has no CUDA module ({}): build where nvcc is found (-DTESSERA_CUDA=ON says "
        "what "
        "is missing), or name the module's file in the environment variable {}; or use the device "
        "cpu",
        kFile, kVariable)};
  }
  auto* const build = function<CudaModuleBuild>(kCudaModuleBuild);
  if (build == nullptr || std::string_view{build()} != TESSERA_BUILD_ID) {
    throw ConfigError{
        fmt::format("the CUDA module {} belongs to another build ({}) than this program ({}): "
                    "build and install both together",
                    path_, build == nullptr ? "unknown" : build(), TESSERA_BUILD_ID)};
  }
}

const CudaModule& CudaModule::get() {
  static const CudaModule module;  // the next call tries again if it throws
  return module;
}

void* CudaModule::symbol(const char* name) const {
  return dlsym(handle_, name);
}

}  // namespace tessera::device

namespace tessera {

CudaMachine cuda_machine() {
  CudaMachine machine;
  try {
    const device::CudaModule& module = device::CudaModule::get();
    machine.module = module.path();
    module.function<device::LookAtCudaMachine>("tessera_cuda_look")(machine);
    module.function<device::LookAtCudaMachine>("tessera_nccl_look")(machine);
    module.function<device::LookAtCudaMachine>("tessera_cudnn_look")(machine);
    device::require_libraries(module);
  } catch (const ConfigError& error) {
    machine.devices.clear();
    machine.problem = error.what();
  }
  return machine;
}

std::optional<DeviceUse> use_of(const Device& device) {
  if (device.kind() != DeviceKind::cuda) { return {}; }
  DeviceUse use;
  device::CudaModule::get().function<device::LookAtCudaDevice>("tessera_cuda_use")(device, use);
  return use;
}

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  const device::CudaModule& module = device::CudaModule::get();
  device::require_libraries(module);
  return std::unique_ptr<Device>{
      module.function<device::MakeCudaDevice>("tessera_cuda_make_device")(options)};
}

}  // namespace tessera

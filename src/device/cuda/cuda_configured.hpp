#pragma once

namespace tessera::cuda {

/// The files of the libraries that the module was built with, as named in a run path; empty: part
/// of the module, or not used.
struct ConfiguredFiles {
  const char* cublaslt;
  const char* nccl;
  const char* cudnn;
};
[[nodiscard]] const ConfiguredFiles& configured_files() noexcept;

}  // namespace tessera::cuda

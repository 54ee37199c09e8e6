#pragma once

#include <string>
#include <string_view>

namespace tessera::device {

/// A library that the CUDA module is linked to: the version and file that were loaded, and those
/// that the module was built with. Versions are numbers as NCCL, cuDNN and cuBLASLt count: 22809 is
/// 2.28.9.
struct CudaLibrary {
  std::string name;  ///< "NCCL"
  int version = 0;
  std::string file;
  int built_version = 0;
  std::string built_file;  ///< empty: the library is part of the module
  int least_version = 0;   ///< older ones cannot be used
};

/// "2.28.9".
[[nodiscard]] std::string version_text(int version);

/// The file that `function` was loaded from; empty if the loader does not know it.
[[nodiscard]] std::string file_of(const void* function);

/// "NCCL 2.28.9 (built with 2.28.9, `more`), /usr/lib/libnccl.so.2". If the version or the file
/// differs from the module's build, advice follows.
[[nodiscard]] std::string describe(const CudaLibrary& library, std::string_view more = {});

/// The text for a `library` older than `least`, with both files and what to do.
[[nodiscard]] std::string too_old_text(const CudaLibrary& library, int least);

/// Throws ConfigError if `library` is older than its least version.
void require_version(const CudaLibrary& library);

}  // namespace tessera::device

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/manifest.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {

/// The source of a load: a checkpoint, or files with only weights, which get a manifest without
/// sums.
///
/// Threads: any; several may `read` at a time.
class LoadSource {
 public:
  virtual ~LoadSource() = default;
  LoadSource(const LoadSource&) = delete;
  LoadSource& operator=(const LoadSource&) = delete;

  [[nodiscard]] virtual const Manifest& manifest() const noexcept = 0;
  /// Reads bytes [first, first + out.size()) of `file`, one of Manifest::files.
  virtual void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) = 0;

 protected:
  LoadSource() = default;
};

/// Opens `path`: the folder of a step, or one of its parts if all of them exist. For weights also a
/// safetensors file, or a folder with model.safetensors or its parts and their index. Throws
/// FormatError.
[[nodiscard]] std::unique_ptr<LoadSource> open_load_source(const std::filesystem::path& path,
                                                           LoadOptions::What what);

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_contents.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera::checkpoint {

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
  /// Checks that each file of `contents` exists with its size, and that its header agrees with the
  /// manifest. Throws FormatError. Files that are not checked must not be read.
  virtual void check_files(const Contents& contents) = 0;
  /// Reads bytes [first, first + out.size()) of `file`, one of Manifest::files.
  virtual void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) = 0;

 protected:
  LoadSource() = default;
};

/// Opens the checkpoint at `path`: the folder of a step, or one of its parts if all of them exist.
/// Checks the files of what is to be loaded: all, or those of the weights. Throws FormatError.
[[nodiscard]] std::unique_ptr<LoadSource> open_checkpoint(const std::filesystem::path& path,
                                                          LoadOptions::What what);
/// Opens the checkpoint at `path`, or for weights also a safetensors file, or a folder with
/// model.safetensors or its parts and their index. Throws FormatError.
[[nodiscard]] std::unique_ptr<LoadSource> open_load_source(const std::filesystem::path& path,
                                                           LoadOptions::What what);

}  // namespace tessera::checkpoint

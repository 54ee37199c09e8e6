#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.hpp"
#include "checkpoint/readable_file.hpp"

namespace tessera::checkpoint {

/// A file of a checkpoint, wherever its bytes are.
struct CheckedFile {
  std::string path;         ///< for errors
  std::uint64_t bytes = 0;  ///< its size
  ReadBytes read;
};

/// The bytes of the file `name` before the data of its tensors, or of the whole file if it is an
/// index: what `manifest` says that they are. Throws FormatError with `path` for tensors that no
/// file can hold.
[[nodiscard]] std::string expected_text(const Manifest& manifest, const std::string& name,
                                        const std::string& path);

/// Throws FormatError unless the file `name` of `manifest` is what a save writes, apart from the
/// data of its tensors: its size, its header or the text of an index, and where its tensors lie.
void check_file(const Manifest& manifest, const std::string& name, const CheckedFile& file);

}  // namespace tessera::checkpoint

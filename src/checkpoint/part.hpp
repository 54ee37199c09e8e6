#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace tessera {

inline constexpr std::string_view kPartName = "part.json";

/// Bytes of one file that a part holds, in their place in the file.
struct PartRange {
  std::string file;  ///< one of Manifest::files
  std::uint64_t first_byte = 0;
  std::uint64_t bytes = 0;
};

/// part.json: what one machine holds of a checkpoint, where machines share no file system. It
/// stands in DIR/step-00000012.part-K in place of manifest.json, beside files that have the names
/// and sizes of the whole checkpoint's. What a machine has not written of a file is a hole.
///
/// The ranges of all parts cover each byte of each file once: headers and index files too. The
/// manifests of all parts are equal but for the sums: a part's sums cover the chunks that lie in
/// its own ranges, so that the parts' sums, added block by block, are the checkpoint's. A range
/// divides no chunk.
struct CheckpointPart {
  std::string save;               ///< equal in all parts of one save, and in no part of another
  int part = 0;                   ///< from 0
  int parts = 1;                  ///< parts that make up the checkpoint
  std::vector<PartRange> ranges;  ///< ascending in each file; none is empty
  Manifest manifest;
};

[[nodiscard]] std::string format_part(const CheckpointPart& part);

/// FormatError with `path` for text that is no part, as parse_manifest for its manifest; for ranges
/// of a file that the manifest does not have, beyond a file's end, or that overlap.
[[nodiscard]] CheckpointPart parse_part(const std::string& path, std::string_view text);

/// Reads what the part in `folder` holds and compares the sums. FormatError that names file, tensor
/// and the bytes of the first damaged block.
void verify_part(const std::filesystem::path& folder);

}  // namespace tessera

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/readable_file.hpp"

namespace tessera::checkpoint {

inline constexpr std::string_view kPartName = "part.json";
/// A larger file is refused before it is read.
inline constexpr std::uint64_t kMostPartBytes = std::uint64_t{1} << 28;

/// Bytes of one file that a part holds, at their offset in the file.
struct PartRange {
  std::string file;  ///< one of Manifest::files
  std::uint64_t first_byte = 0;
  std::uint64_t bytes = 0;
};

/// part.json: what one machine holds of a checkpoint if machines share no file system. It is in
/// DIR/step-00000012.part-K instead of manifest.json, beside files with the names and sizes of the
/// whole checkpoint's. Bytes of a file that the machine did not write are a hole.
///
/// The ranges of all parts cover each byte of each file once, including headers and index files.
/// The manifests of all parts are equal except for the sums: a part's sums cover the chunks in its
/// own ranges, so the parts' sums, added block by block, are the checkpoint's. A range splits no
/// chunk.
struct CheckpointPart {
  std::string save;               ///< equal in all parts of one save, and in no part of another
  int part = 0;                   ///< from 0
  int parts = 1;                  ///< number of parts of the checkpoint
  std::vector<PartRange> ranges;  ///< ascending in each file; none is empty
  Manifest manifest;
};

[[nodiscard]] std::string format_part(const CheckpointPart& part);

/// Throws FormatError with `path` for text that is not a part, for its manifest as parse_manifest
/// does, and for ranges of an unknown file, beyond a file's end, or that overlap.
[[nodiscard]] CheckpointPart parse_part(const std::string& path, std::string_view text);

/// Throws FormatError unless `file`, one of a part, has the size of the checkpoint's file.
void require_size(const ReadableFile& file, std::uint64_t bytes);

}  // namespace tessera::checkpoint

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/part.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {

/// A part of a checkpoint and its folder.
struct FoundPart {
  std::filesystem::path folder;
  CheckpointPart part;
};

/// Parts that do not make up a save, as some are missing. That is no damage: the others may be on
/// other machines.
class IncompleteParts : public FormatError {
 public:
  using FormatError::FormatError;
};

/// The part in `folder`, where part.json exists. Throws FormatError if it cannot be read.
[[nodiscard]] FoundPart read_part(const std::filesystem::path& folder);

/// The parts for `path`, the folder of a missing step or of one of its parts: all parts of that
/// step beside it or, if some of them make up a save, only these. Empty if there are none. Throws
/// FormatError as read_part does.
[[nodiscard]] std::vector<FoundPart> parts_of_step(const std::filesystem::path& path);

/// The manifest of the checkpoint that `parts` make up: the parts' manifest with their sums added.
/// Throws IncompleteParts unless all parts of one save are given, and no others. Throws
/// FormatError, naming the folders, unless each exists once, their manifests agree, and their
/// ranges cover every byte of every file exactly once.
[[nodiscard]] Manifest joined_manifest(const std::vector<FoundPart>& parts);

}  // namespace tessera::checkpoint

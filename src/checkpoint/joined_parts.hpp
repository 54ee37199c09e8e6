#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/part.hpp"

namespace tessera {

/// A part of a checkpoint and the folder that it is in.
struct FoundPart {
  std::filesystem::path folder;
  CheckpointPart part;
};

/// The part in `folder`, which has part.json. FormatError if it cannot be read.
[[nodiscard]] FoundPart read_part(const std::filesystem::path& folder);

/// The parts that `path` stands for, the folder of a step that is not there or of a part of it:
/// those of the step that lie beside it. Empty if there are none. FormatError likewise.
[[nodiscard]] std::vector<FoundPart> parts_of_step(const std::filesystem::path& path);

/// The manifest of the checkpoint that `parts` make up: the parts' own, with their sums added.
/// FormatError, naming the folders, unless all are parts of one save, each is there once, their
/// manifests agree, and their ranges cover every byte of every file exactly once.
[[nodiscard]] Manifest joined_manifest(const std::vector<FoundPart>& parts);

}  // namespace tessera

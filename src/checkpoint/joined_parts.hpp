#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/part.hpp"

namespace tessera {

/// A part of a checkpoint and its folder.
struct FoundPart {
  std::filesystem::path folder;
  CheckpointPart part;
};

/// The part in `folder`, where part.json exists. Throws FormatError if it cannot be read.
[[nodiscard]] FoundPart read_part(const std::filesystem::path& folder);

/// The parts for `path`, the folder of a missing step or of one of its parts: all parts of that
/// step beside it. Empty if there are none. Throws FormatError as read_part does.
[[nodiscard]] std::vector<FoundPart> parts_of_step(const std::filesystem::path& path);

/// The manifest of the checkpoint that `parts` make up: the parts' manifest with their sums added.
/// Throws FormatError, naming the folders, unless all parts belong to one save, each exists once,
/// their manifests agree, and their ranges cover every byte of every file exactly once.
[[nodiscard]] Manifest joined_manifest(const std::vector<FoundPart>& parts);

}  // namespace tessera

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/layout.hpp"

namespace tessera {

inline constexpr int kCheckpointFormat = 1;
inline constexpr std::string_view kManifestName = "manifest.json";
/// A larger file is refused before it is read.
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 28;
inline constexpr std::string_view kProvenanceName = "provenance.json";

/// A tensor as listed in the manifest.
struct ManifestTensor {
  std::string name;
  std::string role;  ///< "weight", "master", "remainder", "moment", "scales", "extra"
  std::string dtype;
  Shape shape;
  std::uint64_t chunk_bytes = 0;
  std::string file;              ///< relative to the step's folder
  std::uint64_t first_byte = 0;  ///< where its data begins in the file
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> sums;  ///< sums of TensorSums, by block
};

/// manifest.json: what a checkpoint holds. A folder without it is not a checkpoint. Nothing in it
/// depends on ranks, strategy, mesh or device.
struct Manifest {
  int format = kCheckpointFormat;
  std::int64_t step = 0;
  /// Counters of the training state: "steps", "updates", "loss_scale", "good_steps", ... and the
  /// optimizer: "optimizer", "moments", "master_weights". Numbers are written so that reading them
  /// back gives the exact value.
  std::map<std::string, std::string> state;
  /// CheckpointExtras::values: data position, seeds, schedule and any other value of the trainer.
  std::map<std::string, std::string> values;
  /// Every file except manifest and provenance, with its size.
  std::map<std::string, std::uint64_t> files;
  std::vector<ManifestTensor> tensors;
};

/// JSON with one tensor a line, and a checksum of itself; equal manifests have equal texts. Throws
/// ContractError for texts that are not UTF-8.
[[nodiscard]] std::string format_manifest(const Manifest& manifest);

/// The last lines of a manifest: the checksum of the text `before` them.
[[nodiscard]] std::string manifest_seal(std::string_view before);

/// Throws FormatError with `path` and the place if the text is no manifest or was changed, has
/// another format version, or lists tensors that overlap or do not fit their file, sizes that do
/// not fit their shapes, too few sums, or contents that no save writes (check_contents).
/// Allocations are bounded by the length of the text, not by numbers in it.
[[nodiscard]] Manifest parse_manifest(const std::string& path, std::string_view text);

}  // namespace tessera

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/checkpoint/manifest.hpp"

namespace tessera::checkpoint {

inline constexpr int kCheckpointFormat = 1;
/// A folder without it is not a checkpoint.
inline constexpr std::string_view kManifestName = "manifest.json";
/// A larger file is refused before it is read.
inline constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 28;
inline constexpr std::string_view kProvenanceName = "provenance.json";
/// A larger file is not read.
inline constexpr std::uint64_t kMostProvenanceBytes = std::uint64_t{1} << 20;

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

}  // namespace tessera::checkpoint

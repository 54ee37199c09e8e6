#pragma once

#include <string>
#include <string_view>

#include "checkpoint/manifest.hpp"

namespace tessera::checkpoint {

/// Whether `file` of `manifest` has tensors of `content`, or is the index of files that do.
[[nodiscard]] bool serves(const Manifest& manifest, std::string_view file, Content content);
/// Whether `file` serves one of `contents`.
[[nodiscard]] bool serves_any(const Manifest& manifest, std::string_view file,
                              const Contents& contents);

/// Throws FormatError with `path` for a manifest that no save writes: counters that are missing,
/// state that belongs to no weight or has another shape, 8-bit moments without scales, and files
/// without tensors. A model that has the tensors loads everything else. Sums are not looked at.
void check_contents(const std::string& path, const Manifest& manifest);

}  // namespace tessera::checkpoint

#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "checkpoint/manifest.hpp"

namespace tessera {

/// What the tensors of a checkpoint are needed for. Each content may be whole where another is
/// damaged.
enum class Content : std::uint8_t {
  weights,    ///< the parameters
  masters,    ///< the fp32 masters of 16-bit parameters, or the remainders that complete them
  optimizer,  ///< moments, and the scales of quantised ones
  buffers,    ///< the trainer's own
};
inline constexpr std::array kContents = {Content::weights, Content::masters, Content::optimizer,
                                         Content::buffers};

using Contents = std::set<Content>;
[[nodiscard]] inline Contents every_content() {
  return {kContents.begin(), kContents.end()};
}

/// The content that tensors of `role` belong to.
[[nodiscard]] Content content_of(std::string_view role) noexcept;
/// "weights", "master weights", "optimizer state", "buffers".
[[nodiscard]] std::string_view to_string(Content content) noexcept;

/// Whether `file` of `manifest` has tensors of `content`, or is the index of files that do.
[[nodiscard]] bool serves(const Manifest& manifest, std::string_view file, Content content);
/// Whether `file` serves one of `contents`.
[[nodiscard]] bool serves_any(const Manifest& manifest, std::string_view file,
                              const Contents& contents);

/// Throws FormatError with `path` for a manifest that no save writes: counters that are missing,
/// state that belongs to no weight or has another shape, 8-bit moments without scales, and files
/// without tensors. A model that has the tensors loads everything else. Sums are not looked at.
void check_contents(const std::string& path, const Manifest& manifest);

}  // namespace tessera

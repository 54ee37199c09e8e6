#pragma once

#include <cstdint>

namespace tessera {

// Tags on the control communicator: word of a failure, and a range for each sender of texts. On a
// channel's communicator a batch's tag is its sequence number.
inline constexpr int kFailureTag = 0;

/// Who exchanges texts: the channels, and the end of a run.
enum class MpiTexts : int { gather = 0, reduce = 1, end = 2 };
inline constexpr int kTextKinds = 3;

/// Sequence numbers wrap in what MPI allows, 32,768 tags at least: two calls that share a tag are
/// so far apart that they are never under way together.
[[nodiscard]] constexpr int batch_tag(std::uint64_t sequence, int tags) noexcept {
  return static_cast<int>(sequence % static_cast<std::uint64_t>(tags));
}

[[nodiscard]] constexpr int text_tag(MpiTexts kind, std::uint64_t sequence, int tags) noexcept {
  const int range = (tags - 1) / kTextKinds;
  return 1 + static_cast<int>(kind) * range +
         static_cast<int>(sequence % static_cast<std::uint64_t>(range));
}

}  // namespace tessera

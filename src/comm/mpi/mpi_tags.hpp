#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::comm {

/// The two MPI communicators of all ranks that carry batches.
enum class MpiKind : int { gather = 0, reduce = 1 };
inline constexpr int kMpiKinds = 2;

/// How many channels can share one of them, given MPI's number of tags (32,768 at least): the
/// channel of all ranks, number 0, and those split from it.
[[nodiscard]] constexpr int channels_of(int tags) noexcept {
  return std::min(tags / 512, 4096);
}

// Each channel has a range of tags for its batches. Sequence numbers wrap within a range of at
// least 512 tags: two batches with the same tag are so far apart that they are never in transit
// together.
[[nodiscard]] constexpr int batch_tag(int channel, std::uint64_t sequence, int tags) noexcept {
  const int range = tags / channels_of(tags);
  return channel * range + static_cast<int>(sequence % static_cast<std::uint64_t>(range));
}

}  // namespace tessera::comm

#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

/// The two MPI communicators of all ranks that carry batches.
enum class MpiKind : int { gather = 0, reduce = 1 };
inline constexpr int kMpiKinds = 2;

/// How many channels can share one of them, given MPI's number of tags (32,768 at least): the
/// channel of all ranks, number 0, and those split from it.
[[nodiscard]] constexpr int channels_of(int tags) noexcept {
  return std::min(tags / 512, 4096);
}

// On a channel's communicator, each channel has a range of tags for its batches. On the control
// communicator: the failure message, the end of a run, then a range for each channel's texts.
inline constexpr int kFailureTag = 0;
inline constexpr int kEndTag = 1;

// Sequence numbers wrap within a range of at least 255 tags: two calls with the same tag are so far
// apart that they are never in transit together.
[[nodiscard]] constexpr int tag_in_range(int range, int range_tags,
                                         std::uint64_t sequence) noexcept {
  return range * range_tags + static_cast<int>(sequence % static_cast<std::uint64_t>(range_tags));
}

[[nodiscard]] constexpr int batch_tag(int channel, std::uint64_t sequence, int tags) noexcept {
  return tag_in_range(channel, tags / channels_of(tags), sequence);
}

[[nodiscard]] constexpr int text_tag(MpiKind kind, int channel, std::uint64_t sequence,
                                     int tags) noexcept {
  constexpr int first = kEndTag + 1;
  const int channels = channels_of(tags);
  return first + tag_in_range(static_cast<int>(kind) * channels + channel,
                              (tags - first) / (kMpiKinds * channels), sequence);
}

}  // namespace tessera

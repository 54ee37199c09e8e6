#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/rank_names.hpp"

namespace tessera {

// What every backend says of the same failure, in the same words.

/// Returns `all_gather of batch "x" (channel gather, sequence 3)`. `what` is "exchange" or what
/// describe() says of a batch.
[[nodiscard]] std::string call_text(std::string_view what, std::string_view channel,
                                    std::uint64_t sequence);

/// Returns `call_text` of a batch of which nothing else is known.
[[nodiscard]] std::string batch_text(std::string_view channel, std::uint64_t sequence);

/// Returns that `rank` has waited in `call` so long for ranks that did not come.
[[nodiscard]] std::string missing_text(const RankNames& names, std::string_view call, int rank,
                                       std::chrono::milliseconds waited,
                                       const std::vector<int>& missing);

/// Ranks that hold up others, and the call that they did not make.
struct HeldUp {
  std::vector<int> guilty = {};  ///< The ranks; empty if none is known.
  std::string where = {};        ///< The call, as call_text has it.
};

/// Returns `missing_text` where the ranks that `rank` waits for wait themselves, in the end for
/// those of `by`. `missing` is empty if they all came and one of them is held up before its data
/// moves.
[[nodiscard]] std::string held_up_text(const RankNames& names, std::string_view call, int rank,
                                       std::chrono::milliseconds waited,
                                       const std::vector<int>& missing, const HeldUp& by);

/// Returns `missing_text` where there are groups, and it is unknown whether those ranks wait.
[[nodiscard]] std::string missing_in_group_text(const RankNames& names, std::string_view call,
                                                int rank, std::chrono::milliseconds waited,
                                                const std::vector<int>& missing);

/// Returns that `rank` has waited in `call` so long for ranks that came and then stopped.
[[nodiscard]] std::string stopped_text(const RankNames& names, std::string_view call, int rank,
                                       std::chrono::milliseconds waited,
                                       const std::vector<int>& stopped);

/// Returns that `rank` waits in `call` for `ended`, whose program has ended without it.
[[nodiscard]] std::string ended_text(const RankNames& names, std::string_view call, int rank,
                                     int ended);

/// Returns that `call` was taken back by its own rank.
[[nodiscard]] std::string withdrawn_text(std::string_view call);

/// Returns that `who` has said something on the control path that it must not: `problem`.
[[nodiscard]] std::string broken_text(std::string_view who, std::string_view problem);

/// Returns that the ranks issued different batches. `difference` is as first_difference() has it.
[[nodiscard]] std::string disagreement_text(std::string_view channel, std::uint64_t sequence,
                                            std::string_view difference);

/// Longer deadlines count as this one, which keeps `now + deadline` within the clock's range.
inline constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours{24 * 365};

}  // namespace tessera

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/rank_names.hpp"

namespace tessera::comm {

// The texts of failures, the same for every backend.

/// Returns `all_gather of batch "x" (channel gather, sequence 3)`. `what` is "exchange" or what
/// describe() says of a batch.
[[nodiscard]] std::string call_text(std::string_view what, std::string_view channel,
                                    std::uint64_t sequence);

/// Returns `call_text` of a batch that is known only by its number.
[[nodiscard]] std::string batch_text(std::string_view channel, std::uint64_t sequence);

/// The text for `rank`, which waited in `call` for ranks that did not make it.
[[nodiscard]] std::string missing_text(const RankNames& names, std::string_view call, int rank,
                                       std::chrono::milliseconds waited,
                                       const std::vector<int>& missing);

/// What a rank owes the ranks that wait for it: to make a call or, having made it, the call's data.
enum class Owed : std::uint8_t { call, data };

/// Ranks that hold up others, and the call in which they do.
struct HeldUp {
  std::vector<int> guilty = {};  ///< The ranks; empty if none is known.
  std::string where = {};        ///< The call, as call_text has it.
  Owed owed = Owed::call;
};

/// The text where the ranks that `rank` waits for are themselves waiting, in the end for those of
/// `by`. `missing` is empty if they all made the call and one of them is held up before its data
/// moves.
[[nodiscard]] std::string held_up_text(const RankNames& names, std::string_view call, int rank,
                                       std::chrono::milliseconds waited,
                                       const std::vector<int>& missing, const HeldUp& by);

/// The text for `rank`, which waited in `call` for ranks that made the call and then stopped.
[[nodiscard]] std::string stopped_text(const RankNames& names, std::string_view call, int rank,
                                       std::chrono::milliseconds waited,
                                       const std::vector<int>& stopped);

/// The text for `rank`, which waits in `call` for `ended`, whose program has ended without it.
[[nodiscard]] std::string ended_text(const RankNames& names, std::string_view call, int rank,
                                     int ended);

/// The text for a `call` that its own rank withdrew.
[[nodiscard]] std::string withdrawn_text(std::string_view call);

/// The text for `who`, which sent an invalid message on the control path: `problem`.
[[nodiscard]] std::string broken_text(std::string_view who, std::string_view problem);

/// The text for ranks that issued different batches. `difference` comes from first_difference().
[[nodiscard]] std::string disagreement_text(std::string_view channel, std::uint64_t sequence,
                                            std::string_view difference);

/// Longer deadlines are cut to this one, so that `now + deadline` stays within the clock's range.
inline constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours{24 * 365};

}  // namespace tessera::comm

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/control/rank_names.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// How a communicator's ranks are split into groups, and the name of the groups.
struct RankSplit {
  std::vector<std::int32_t> groups;  ///< by rank
  std::string name;
};

/// Calls `group_of` for each of `ranks` ranks. Throws ContractError if a group is negative;
/// `name_of` names ranks in errors, here and below.
[[nodiscard]] RankSplit split_ranks(const GroupOf& group_of, int ranks, const std::string& name,
                                    const NameOfRank& name_of);

/// The split as bytes, and the hash of these bytes.
[[nodiscard]] std::string encode(const RankSplit& split);
[[nodiscard]] std::uint64_t hash_of(const RankSplit& split);

/// Describes the difference between the encoded splits of ranks: "rank 2 splits off "x" where rank
/// 0 splits off "y"".
[[nodiscard]] std::string first_difference(std::span<const std::string> codes,
                                           const NameOfRank& name_of);

/// Returns every rank's text, given this rank's.
using ExchangeTexts = std::function<std::vector<std::string>(std::string text)>;

/// *Collective.* The highest number of all ranks that make a communicator for `name`. Throws
/// ContractError on all ranks if one makes another call.
[[nodiscard]] int agree_on_highest(int number, const std::string& name,
                                   const ExchangeTexts& exchange, const NameOfRank& name_of);

}  // namespace tessera::comm

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/control/rank_names.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera {

/// How a communicator's ranks are divided into groups, and what each group is called.
struct RankSplit {
  std::vector<std::int32_t> groups;  ///< by rank
  std::string name;
};

/// What `group_of` says of each of `ranks` ranks. ContractError if a group is negative. `name_of`
/// names ranks in errors, here and below.
[[nodiscard]] RankSplit split_ranks(const GroupOf& group_of, int ranks, const std::string& name,
                                    const NameOfRank& name_of);

/// As bytes, and a hash of them.
[[nodiscard]] std::string encode(const RankSplit& split);
[[nodiscard]] std::uint64_t hash_of(const std::string& code);

/// What ranks that do not all divide alike differ in, by what they encoded: "rank 2 splits off
/// "x" where rank 0 splits off "y"".
[[nodiscard]] std::string first_difference(std::span<const std::string> codes,
                                           const NameOfRank& name_of);

/// Gives every rank's of what this one says.
using ExchangeTexts = std::function<std::vector<std::string>(std::string text)>;

/// *Collective.* The highest of the ranks' numbers, where they make a communicator for `name`.
/// ContractError on all ranks if one makes another call.
[[nodiscard]] int agree_on_highest(int number, const std::string& name,
                                   const ExchangeTexts& exchange, const NameOfRank& name_of);

}  // namespace tessera

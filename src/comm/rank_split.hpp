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

/// Returns the group of each of `ranks` ranks by `group_of`. ContractError if one is negative.
/// `name_of` names ranks in errors, here and below.
[[nodiscard]] RankSplit split_ranks(const GroupOf& group_of, int ranks, const std::string& name,
                                    const NameOfRank& name_of);

/// As bytes, and a hash of them.
[[nodiscard]] std::string encode(const RankSplit& split);
[[nodiscard]] std::uint64_t hash_of(const std::string& code);

/// Returns how the splits that ranks encoded differ: "rank 2 splits off "x" where rank 0 splits off
/// "y"". They do differ.
[[nodiscard]] std::string first_difference(std::span<const std::string> codes,
                                           const NameOfRank& name_of);

/// Sends `text` to the other ranks and returns every rank's text.
using ExchangeTexts = std::function<std::vector<std::string>(std::string text)>;

/// *Collective.* Returns the highest of the ranks' numbers for the communicator `name`.
/// ContractError on all ranks if one makes another call.
[[nodiscard]] int agree_on_highest(int number, const std::string& name,
                                   const ExchangeTexts& exchange, const NameOfRank& name_of);

}  // namespace tessera

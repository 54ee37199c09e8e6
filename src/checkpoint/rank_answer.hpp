#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/layout.hpp"

namespace tessera::checkpoint {

/// What a rank tells the others once rank 0 has made the folder of a save.
struct RankAnswer {
  bool finds = false;         ///< whether it finds that folder in its own DIR
  std::uint64_t balance = 0;  ///< SavePlan::split_balance
  std::uint64_t files = 0;    ///< hash_of_files: equal on all ranks
  std::uint64_t values = 0;   ///< hash_of_values: equal on all ranks
  std::string machine;        ///< FileSystem::machine

  [[nodiscard]] std::string text() const;
};
/// The inverse of RankAnswer::text, for the texts of all ranks.
[[nodiscard]] std::vector<RankAnswer> answers_in(const std::vector<std::string>& texts);

/// The values of CheckpointExtras.
using SavedValues = std::map<std::string, std::string>;

/// A hash of what two layouts say: the names, headers and sizes of files, and index files.
[[nodiscard]] std::uint64_t hash_of_files(const CheckpointLayout& state,
                                          const CheckpointLayout& extras);
/// A hash of names and values.
[[nodiscard]] std::uint64_t hash_of_values(const SavedValues& values);
/// Returns the values as a text for other ranks. Names and values are UTF-8.
[[nodiscard]] std::string text_of_values(const SavedValues& values);
/// Returns how the first values that differ from rank 0's differ, in the texts of all ranks: "the
/// value 'seed' is '1' on rank 0, but '2' on rank 3". Empty if all are equal.
[[nodiscard]] std::string difference_in_values(const std::vector<std::string>& texts);

}  // namespace tessera::checkpoint

#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "support/rank_values.hpp"
#include "tessera/world/world.hpp"

namespace tessera::test {

/// A way of dividing ranks into groups.
struct Rule {
  std::string name;
  GroupOf group_of;

  /// The ranks in `rank`'s group, in order, in a job of `ranks` ranks.
  [[nodiscard]] std::vector<int> members(int rank, int ranks) const {
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) {
      if (group_of(r) == group_of(rank)) { all.push_back(r); }
    }
    return all;
  }
};

/// Groups of equal and unequal sizes, of one rank and of all, of neighbours and interleaved.
inline const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{
      {"together", [](int) { return 0; }},
      {"alone", [](int rank) { return rank; }},
      {"pairs", [](int rank) { return rank / 2; }},
      {"every second", [](int rank) { return rank % 2; }},
      {"every third", [](int rank) { return rank % 3; }},
      {"unequal", [](int rank) { return rank == 0  ? 900
                                        : rank < 4 ? 7
                                                   : 30; }},
  };
  return all;
}

/// The inputs of ranks of the job, by their index in `members`.
inline std::vector<HostTensor> tensors_of(const std::vector<int>& members, DType dtype,
                                          std::int64_t elems, std::uint32_t salt = 0) {
  std::vector<HostTensor> all;
  for (const int rank : members) {
    all.push_back(rank_tensor(dtype, elems, rank, Values::random, salt));
  }
  return all;
}

}  // namespace tessera::test

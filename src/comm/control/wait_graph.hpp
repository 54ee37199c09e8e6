#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace tessera::comm {

/// The ranks that wait for others at one moment. It shows which rank is to blame for a call that
/// was not complete by its deadline. Ranks are numbered as in the job.
struct WaitGraph {
  /// A call that only some of its ranks have made.
  struct Call {
    std::vector<int> missing = {};  ///< The ranks that have not made the call.
    std::vector<int> waiting = {};  ///< The ranks that have made it and wait for the missing ones.
  };
  std::vector<Call> calls;

  /// Returns those of `ranks` that wait in no call: no other rank holds them up.
  [[nodiscard]] std::vector<int> free_of(const std::vector<int>& ranks) const;
};

/// The ranks that hold others up, and the index of the call in which they are missing.
struct Blame {
  std::size_t call = 0;
  std::vector<int> ranks;
};

/// Returns the ranks that, in the end, hold up those waiting in call `from`: the ranks missing
/// there, if one of them waits for no rank; otherwise those missing where these wait, and so on.
/// Returns nothing if there is no such rank, for example where ranks wait for each other.
[[nodiscard]] std::optional<Blame> find_blame(const WaitGraph& graph, std::size_t from);

}  // namespace tessera::comm

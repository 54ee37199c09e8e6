#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace tessera {

/// The ranks that wait for others at one moment. It shows which rank is to blame for a call that
/// was not complete by its deadline. Ranks are numbered as in the job.
struct WaitGraph {
  /// A call that only some of its ranks have made.
  struct Call {
    std::vector<int> missing = {};  ///< The ranks that have not made the call.
    std::vector<int> waiting = {};  ///< The ranks that have made it and wait for the missing ones.
    /// Whether its ranks made it only after another rank's deadline had passed.
    bool after_deadline = false;
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

/// Returns which of several calls is reported, where every rank knows the whole graph and one is to
/// report: the first whose ranks wait for a rank that waits for no other. Without one, the first
/// whose ranks wait for a rank that came after the deadline. If all wait for each other, the first
/// call, with all ranks missing there. The graph must have a call.
[[nodiscard]] Blame first_blame(const WaitGraph& graph);

}  // namespace tessera

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace tessera {

/// Who waits for whom in a job at one moment: from this it follows who is to blame for a call that
/// was not complete by its deadline. Ranks are the job's.
struct WaitGraph {
  /// A call that some of its ranks have come to and others not.
  struct Call {
    std::vector<int> missing = {};  ///< The ranks that have not come.
    std::vector<int> waiting = {};  ///< The ranks that have come and wait for the missing ones.
    /// Whether its ranks came only after another rank's deadline had passed.
    bool after_deadline = false;
  };
  std::vector<Call> calls;

  /// Returns those of `ranks` that wait in no call: no other rank is to blame.
  [[nodiscard]] std::vector<int> free_of(const std::vector<int>& ranks) const;
};

/// The ranks that hold others up, and the call, by its place in the graph, that they are missing
/// in.
struct Blame {
  std::size_t call = 0;
  std::vector<int> ranks;
};

/// Returns the ranks that, in the end, hold up those that wait in call `from`: the ranks that are
/// missing there, if one of them waits for no rank; else those that are missing where these wait,
/// and so on. Returns nothing where there is no such rank, as where ranks wait for each other.
[[nodiscard]] std::optional<Blame> find_blame(const WaitGraph& graph, std::size_t from);

/// Returns which call of several is reported, where every rank knows the whole graph and one is to
/// report: the first whose ranks wait for a rank that waits for no other. If there is none, it is
/// the first whose ranks wait for one that came after the deadline. If all wait for each other, it
/// is the first call, with all ranks that are missing there. The graph has a call.
[[nodiscard]] Blame first_blame(const WaitGraph& graph);

}  // namespace tessera

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
    std::vector<int> missing = {};  ///< have not come
    std::vector<int> waiting = {};  ///< have come, and wait for those
    /// Its ranks came only after another rank's deadline had passed.
    bool after_deadline = false;
  };
  std::vector<Call> calls;

  /// Those of `ranks` that wait in no call: nobody else is to blame.
  [[nodiscard]] std::vector<int> free_of(const std::vector<int>& ranks) const;
};

/// Ranks that hold others up, and the call (by its place in the graph) that they are missing in.
struct Blame {
  std::size_t call = 0;
  std::vector<int> ranks;
};

/// Who holds up, in the end, the ranks that wait in call `from`: who is missing there, if one of
/// them waits for nobody; else who is missing where these wait, and so on. Nothing where no such
/// rank is found, as where ranks wait for each other.
[[nodiscard]] std::optional<Blame> find_blame(const WaitGraph& graph, std::size_t from);

/// Which call of several is reported, where every rank knows the whole graph and one is to report:
/// the first whose ranks wait for one that waits for nobody. If there is none, the first whose
/// ranks wait for one that came after the deadline. If all wait for each other, the first call, and
/// all who are missing there. The graph has a call.
[[nodiscard]] Blame first_blame(const WaitGraph& graph);

}  // namespace tessera

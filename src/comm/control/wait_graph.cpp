#include "comm/control/wait_graph.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace tessera::comm {
namespace {

bool waits_in(const WaitGraph::Call& call, int rank) {
  return std::ranges::find(call.waiting, rank) != call.waiting.end();
}

}  // namespace

std::vector<int> WaitGraph::free_of(const std::vector<int>& ranks) const {
  std::vector<int> free;
  std::ranges::copy_if(ranks, std::back_inserter(free), [this](int rank) {
    return std::ranges::none_of(calls, [rank](const Call& call) { return waits_in(call, rank); });
  });
  return free;
}

std::optional<Blame> find_blame(const WaitGraph& graph, std::size_t from) {
  std::vector<std::size_t> reached{from};
  std::set<std::size_t> known{from};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const std::vector<int>& missing = graph.calls[reached[i]].missing;
    if (std::vector<int> ranks = graph.free_of(missing); !ranks.empty()) {
      return Blame{reached[i], std::move(ranks)};
    }
    for (std::size_t next = 0; next < graph.calls.size(); ++next) {
      const bool holds_up =
          std::ranges::any_of(missing, [&](int rank) { return waits_in(graph.calls[next], rank); });
      if (holds_up && known.insert(next).second) { reached.push_back(next); }
    }
  }
  return {};
}

}  // namespace tessera::comm

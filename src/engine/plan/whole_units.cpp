#include "engine/plan/whole_units.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "engine/plan/size_classes.hpp"

namespace tessera::engine {
namespace {

using Sorted = std::span<const std::size_t>;  // units by ascending size

/// The cheapest way to keep the smallest units, by its last class.
struct Choice {
  std::size_t bytes = 0;
  std::size_t whole = 0;  // units
  std::size_t classes = 0;
  std::size_t from = 0;  // where the last class begins
  bool last_is_whole = false;

  [[nodiscard]] bool better_than(const Choice& other) const noexcept {
    return std::tie(bytes, whole, classes) < std::tie(other.bytes, other.whole, other.classes);
  }
};

class Chooser {
 public:
  Chooser(std::span<const UnitBytes> units, Sorted sorted, int slots)
      : units_{units}, sorted_{sorted}, slots_{slots}, best_(sorted.size() + 1) {
    for (std::size_t end = 1; end <= sorted.size(); ++end) { choose(end); }
  }

  /// Whether each unit of `sorted` is whole.
  [[nodiscard]] std::vector<bool> whole() const {
    std::vector<bool> whole(sorted_.size(), false);
    for (std::size_t end = sorted_.size(); end > 0; end = best_[end].from) {
      for (std::size_t i = best_[end].from; i < end; ++i) { whole[i] = best_[end].last_is_whole; }
    }
    return whole;
  }

 private:
  void choose(std::size_t end) {
    const std::size_t slot = units_[sorted_[end - 1]].whole;
    std::size_t shards = 0;
    Choice& best = best_[end];
    best = with_whole(end);
    for (std::size_t from = end; from-- > 0;) {
      shards += units_[sorted_[from]].shard;
      const std::size_t slots = std::min(end - from, static_cast<std::size_t>(slots_));
      const Choice one{best_[from].bytes + slots * slot + shards, best_[from].whole,
                       best_[from].classes + 1, from, /*last_is_whole=*/false};
      if (one.better_than(best)) { best = one; }
    }
  }

  /// The largest of the units before `end` is whole.
  [[nodiscard]] Choice with_whole(std::size_t end) const {
    const Choice& rest = best_[end - 1];
    return {rest.bytes + units_[sorted_[end - 1]].whole, rest.whole + 1, rest.classes, end - 1,
            /*last_is_whole=*/true};
  }

  std::span<const UnitBytes> units_;
  Sorted sorted_;
  int slots_;
  std::vector<Choice> best_;  // [n]: of the n smallest units
};

WholeRun run_of(std::span<const UnitBytes> units, Sorted run, int slots) {
  WholeRun whole{.units = {run.begin(), run.end()}};
  std::vector<std::size_t> sizes;
  for (const std::size_t u : run) {
    sizes.push_back(units[u].whole);
    whole.whole_bytes += units[u].whole;
    whole.sharded_bytes += units[u].shard;
  }
  for (const SizeClass& one : size_classes(sizes, slots)) { whole.sharded_bytes += one.bytes(); }
  std::ranges::sort(whole.units);
  return whole;
}

}  // namespace

std::vector<WholeRun> whole_units(std::span<const UnitBytes> units, int slots) {
  std::vector<WholeRun> runs;
  std::vector<std::size_t> sharing;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (!units[u].own_slot) {
      sharing.push_back(u);
    } else if (units[u].shard > 0) {
      runs.push_back({{u}, units[u].whole, units[u].shard + units[u].whole});
    }
  }
  std::ranges::sort(sharing, {}, [&](std::size_t u) { return std::pair{units[u].whole, u}; });
  const std::vector<bool> whole = Chooser{units, sharing, slots}.whole();
  for (auto first = whole.begin(); (first = std::find(first, whole.end(), true)) != whole.end();) {
    const auto end = std::find(first, whole.end(), false);
    runs.push_back(run_of(units,
                          Sorted{sharing}.subspan(static_cast<std::size_t>(first - whole.begin()),
                                                  static_cast<std::size_t>(end - first)),
                          slots));
    first = end;
  }
  return runs;
}

}  // namespace tessera::engine

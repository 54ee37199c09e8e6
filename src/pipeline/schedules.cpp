#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {
namespace {

constexpr std::int64_t kMostActions = std::int64_t{1} << 24;

/// A schedule of `chunks` stages on each of `ranks` ranks, without actions.
Schedule empty(std::string name, int ranks, int chunks, int micro_batches) {
  const auto require = [&](const char* what, int number) {
    if (number >= 1) { return; }
    throw ConfigError{fmt::format("schedule {}: {} {}; give 1 or more", name, number, what)};
  };
  require("ranks", ranks);
  require("stages a rank", chunks);
  require("micro-batches", micro_batches);
  if (std::int64_t{ranks} * chunks > kMostActions / micro_batches) {
    throw ConfigError{
        fmt::format("schedule {}: {} ranks with {} stages each and {} micro-batches; give at most "
                    "{} of all together",
                    name, ranks, chunks, micro_batches, kMostActions)};
  }
  Schedule schedule{.name = std::move(name),
                    .micro_batches = micro_batches,
                    .rank_of_stage = {},
                    .ranks = std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks))};
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    schedule.rank_of_stage.push_back(stage % ranks);
  }
  return schedule;
}

}  // namespace

Schedule gpipe(int ranks, int micro_batches) {
  Schedule schedule = empty("gpipe", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    auto& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    for (const Work work : {Work::forward, Work::backward}) {
      for (int m = 0; m < micro_batches; ++m) { actions.push_back({work, rank, m}); }
    }
  }
  return schedule;
}

Schedule one_forward_one_backward(int ranks, int micro_batches) {
  Schedule schedule = empty("1f1b", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    auto& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    int forward = 0;
    const int first = std::min(ranks - rank - 1, micro_batches);
    while (forward < first) { actions.push_back({Work::forward, rank, forward++}); }
    for (int m = 0; m < micro_batches; ++m) {
      if (forward < micro_batches) { actions.push_back({Work::forward, rank, forward++}); }
      actions.push_back({Work::backward, rank, m});
    }
  }
  return schedule;
}

// Forward passes take the micro-batches in groups of P: a group on the rank's first stage, the same
// group on its second, and so on; backward passes in the same order from the last stage.
Schedule interleaved(int ranks, int chunks, int micro_batches) {
  Schedule schedule = empty("interleaved 1f1b", ranks, chunks, micro_batches);
  if (micro_batches % ranks != 0) {
    throw ConfigError{
        fmt::format("schedule interleaved 1f1b: {} micro-batches on {} ranks; give a multiple of "
                    "the ranks, or use 1f1b",
                    micro_batches, ranks)};
  }
  const int total = chunks * micro_batches;
  for (int rank = 0; rank < ranks; ++rank) {
    auto& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    const auto nth = [&](Work work, int k) {
      const int chunk = k / ranks % chunks;
      const int stage = (work == Work::forward ? chunk : chunks - 1 - chunk) * ranks + rank;
      actions.push_back({work, stage, k / (ranks * chunks) * ranks + k % ranks});
    };
    const int ahead =
        chunks == 1 ? ranks - rank - 1 : (ranks - rank - 1) * 2 + (chunks - 1) * ranks;
    int forward = 0;
    while (forward < std::min(ahead, total)) { nth(Work::forward, forward++); }
    for (int backward = 0; backward < total; ++backward) {
      if (forward < total) { nth(Work::forward, forward++); }
      nth(Work::backward, backward);
    }
  }
  return schedule;
}

// As 1F1B, but rank r computes gradients of weights r micro-batches late. So every rank has P
// micro-batches in flight, and gradients of weights fill the end, where 1F1B waits.
Schedule zero_bubble(int ranks, int micro_batches) {
  Schedule schedule = empty("zero bubble (ZB-H1)", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    auto& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    int forward = 0;
    int weight = 0;
    const int first = std::min(ranks - rank - 1, micro_batches);
    while (forward < first) { actions.push_back({Work::forward, rank, forward++}); }
    for (int m = 0; m < micro_batches; ++m) {
      if (forward < micro_batches) { actions.push_back({Work::forward, rank, forward++}); }
      actions.push_back({Work::backward_input, rank, m});
      if (m >= rank) { actions.push_back({Work::backward_weight, rank, weight++}); }
    }
    while (weight < micro_batches) { actions.push_back({Work::backward_weight, rank, weight++}); }
  }
  return schedule;
}

}  // namespace tessera::pipeline

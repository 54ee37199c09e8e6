#include "tessera/pipeline/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/enumerator.hpp"
#include "pipeline/progress.hpp"
#include "tessera/base/error.hpp"

namespace tessera::pipeline {
namespace {

[[noreturn]] void refuse(const Schedule& schedule, const std::string& what) {
  throw ConfigError{fmt::format("schedule {}: {}", schedule.name, what)};
}

/// What a stage has made of one micro-batch.
struct Made {
  bool forward = false;
  bool input = false;
  bool weight = false;
};

void check_sizes(const Schedule& schedule) {
  if (schedule.micro_batches < 1) { refuse(schedule, "it has no micro-batches; give 1 or more"); }
  if (schedule.rank_of_stage.empty()) { refuse(schedule, "it has no stages; give 1 or more"); }
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.rank_of_stage[static_cast<std::size_t>(stage)];
    if (rank >= 0 && rank < ranks) { continue; }
    refuse(schedule, fmt::format("stage {} is on rank {}, but there are actions for {} ranks",
                                 stage, rank, ranks));
  }
}

/// The part of `made` that `action` makes next; throws if it is made twice or too early.
void note(const Schedule& schedule, int rank, const Action& action, Made& made) {
  const auto twice = [&](bool is) {
    if (!is) { return; }
    refuse(schedule, fmt::format("rank {} makes the {} twice", rank, to_string(action)));
  };
  const auto early = [&](bool is, const char* what) {
    if (!is) { return; }
    refuse(schedule,
           fmt::format("rank {} makes the {} before its {}", rank, to_string(action), what));
  };
  switch (action.work) {
    case Work::forward:
      twice(made.forward);
      made.forward = true;
      break;
    case Work::backward:
      twice(made.input || made.weight);
      early(!made.forward, "forward");
      made.input = made.weight = true;
      break;
    case Work::backward_input:
      twice(made.input);
      early(!made.forward, "forward");
      made.input = true;
      break;
    case Work::backward_weight:
      twice(made.weight);
      early(!made.input, "backward_input");
      made.weight = true;
      break;
  }
}

/// Tracks what each pair of stage and micro-batch has computed: at most one pair more than the
/// schedule has actions, in the order of stages. If there are more pairs, at least one of the
/// tracked ones is incomplete, so actions bound the memory.
class MadePairs {
 public:
  explicit MadePairs(const Schedule& schedule)
      : micro_batches_{static_cast<std::size_t>(schedule.micro_batches)} {
    std::size_t actions = 0;
    for (const auto& of_rank : schedule.ranks) { actions += of_rank.size(); }
    made_.resize(std::min(schedule.rank_of_stage.size() * micro_batches_, actions + 1));
  }
  /// Null if it is beyond the first pairs.
  [[nodiscard]] Made* find(const Action& action) {
    const std::size_t at = static_cast<std::size_t>(action.stage) * micro_batches_ +
                           static_cast<std::size_t>(action.micro_batch);
    return at < made_.size() ? &made_[at] : nullptr;
  }
  /// The first action that is missing.
  [[nodiscard]] std::optional<Action> missing() const {
    const auto found = std::ranges::find_if(made_, [](const Made& made) { return !made.weight; });
    if (found == made_.end()) { return {}; }
    const auto at = static_cast<std::size_t>(found - made_.begin());
    const Work work = !found->forward ? Work::forward
                      : found->input  ? Work::backward_weight
                                      : Work::backward;
    return Action{work, static_cast<int>(at / micro_batches_),
                  static_cast<int>(at % micro_batches_)};
  }

 private:
  std::size_t micro_batches_;
  std::vector<Made> made_;
};

/// Throws unless `rank` may make `action` at all.
void check_action(const Schedule& schedule, int rank, const Action& action) {
  require_enumerator("Action::work", action.work, Work::backward_weight);
  if (action.stage < 0 || action.stage >= schedule.stages() || action.micro_batch < 0 ||
      action.micro_batch >= schedule.micro_batches) {
    refuse(schedule,
           fmt::format("rank {} makes the {}, but there are {} stages and {} micro-batches", rank,
                       to_string(action), schedule.stages(), schedule.micro_batches));
  }
  const int owner = schedule.rank_of_stage[static_cast<std::size_t>(action.stage)];
  if (owner != rank) {
    refuse(schedule, fmt::format("rank {} makes the {}, which is on rank {}", rank,
                                 to_string(action), owner));
  }
}

void check_complete(const Schedule& schedule) {
  MadePairs pairs{schedule};
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const Action& action : schedule.ranks[r]) {
      check_action(schedule, rank, action);
      if (Made* const made = pairs.find(action)) { note(schedule, rank, action, *made); }
    }
  }
  if (const auto missing = pairs.missing()) {
    refuse(schedule, fmt::format("no rank makes the {}", to_string(*missing)));
  }
}

/// How `action` changes the number of pairs that its rank holds.
int change_of_held(const Action& action) {
  switch (action.work) {
    case Work::forward:
      return 1;
    case Work::backward_input:
      return 0;
    case Work::backward:
    case Work::backward_weight:
      break;
  }
  return -1;
}

void check_ends(const Schedule& schedule) {
  Progress progress{schedule};
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < ranks; ++rank) {
      while (const Action* const action = progress.next(rank)) {
        const std::optional<Action> needed = progress.needs(*action);
        if (needed && !progress.done(*needed)) { break; }
        progress.make(rank, 0);
        moved = true;
      }
    }
  }
  std::string waiting;
  for (int rank = 0; rank < ranks; ++rank) {
    const Action* const action = progress.next(rank);
    if (action == nullptr) { continue; }
    const Action needed = *progress.needs(*action);
    waiting += fmt::format("{}rank {} is at the {} and waits for rank {}'s {}",
                           waiting.empty() ? "" : "; ", rank, to_string(*action),
                           schedule.rank_of_stage[static_cast<std::size_t>(needed.stage)],
                           to_string(needed));
  }
  if (!waiting.empty()) { refuse(schedule, "it never ends: " + waiting); }
}

void check_held(const Schedule& schedule) {
  if (!schedule.in_flight_limit) { return; }
  const int limit = *schedule.in_flight_limit;
  if (limit < 1) {
    refuse(schedule, fmt::format("`in_flight_limit` is {}; give 1 or more, or none", limit));
  }
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    int held = 0;
    for (const Action& action : schedule.ranks[rank]) {
      held += change_of_held(action);
      if (held <= limit) { continue; }
      refuse(
          schedule,
          fmt::format("rank {} would hold the activations of {} micro-batches from the {} on, but "
                      "`in_flight_limit` is {}; put backward passes before it, or raise the limit",
                      rank, held, to_string(action), limit));
    }
  }
}

}  // namespace

std::string_view to_string(Work work) noexcept {
  switch (work) {
    case Work::forward:
      return "forward";
    case Work::backward:
      return "backward";
    case Work::backward_input:
      return "backward_input";
    case Work::backward_weight:
      break;
  }
  return "backward_weight";
}

std::string to_string(const Action& action) {
  return fmt::format("{} of micro-batch {} on stage {}", to_string(action.work), action.micro_batch,
                     action.stage);
}

void check(const Schedule& schedule) {
  check_sizes(schedule);
  check_complete(schedule);
  check_ends(schedule);
  check_held(schedule);
}

std::vector<int> most_in_flight(const Schedule& schedule) {
  std::vector<int> most;
  for (const auto& actions : schedule.ranks) {
    int held = 0;
    int highest = 0;
    for (const Action& action : actions) {
      held += change_of_held(action);
      highest = std::max(highest, held);
    }
    most.push_back(highest);
  }
  return most;
}

}  // namespace tessera::pipeline

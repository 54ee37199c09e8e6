#include "pipeline/progress.hpp"

namespace tessera::pipeline {

Progress::Progress(const Schedule& schedule)
    : schedule_{schedule},
      made_(schedule.ranks.size()),
      times_(schedule.rank_of_stage.size() * static_cast<std::size_t>(schedule.micro_batches) *
             kParts) {}

const Action* Progress::next(int rank) const {
  const auto& actions = schedule_.ranks[static_cast<std::size_t>(rank)];
  const std::size_t made = made_[static_cast<std::size_t>(rank)];
  return made < actions.size() ? &actions[made] : nullptr;
}

std::optional<Action> Progress::needs(const Action& action) const {
  Action needed = action;
  switch (action.work) {
    case Work::forward:
      --needed.stage;
      if (needed.stage < 0) { return {}; }
      return needed;
    case Work::backward_weight:
      needed.work = Work::backward_input;
      return needed;
    case Work::backward:
    case Work::backward_input:
      break;
  }
  ++needed.stage;
  if (needed.stage < schedule_.stages()) { return needed; }
  return Action{Work::forward, action.stage, action.micro_batch};
}

std::optional<double> Progress::done(const Action& action) const {
  return times_[index(action.stage, action.micro_batch, part_of(action.work))];
}

void Progress::make(int rank, double time) {
  const Action& action = *next(rank);
  times_[index(action.stage, action.micro_batch, part_of(action.work))] = time;
  if (action.work == Work::backward) {
    times_[index(action.stage, action.micro_batch, weight)] = time;
  }
  ++made_[static_cast<std::size_t>(rank)];
}

std::size_t Progress::index(int stage, int micro_batch, Part part) const {
  const auto row =
      static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.micro_batches) +
      static_cast<std::size_t>(micro_batch);
  return row * kParts + part;
}

Progress::Part Progress::part_of(Work work) noexcept {
  switch (work) {
    case Work::forward:
      return forward;
    case Work::backward_weight:
      return weight;
    case Work::backward:
    case Work::backward_input:
      break;
  }
  return input;
}

}  // namespace tessera::pipeline

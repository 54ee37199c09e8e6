#pragma once

#include <string>
#include <vector>

#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {

/// The times that one stage takes for one micro-batch, in any unit of time.
struct StageCosts {
  double forward = 1;          ///< time of Work::forward
  double backward_input = 1;   ///< time of Work::backward_input
  double backward_weight = 1;  ///< time of Work::backward_weight; Work::backward takes both
};

/// The times from which `play` computes a timeline.
struct Costs {
  std::vector<StageCosts> stages;  ///< by stage; a single entry holds for all stages
  double transfer = 0;             ///< from the end of an action to its data's arrival elsewhere
};

/// An action with its times.
struct Span {
  Action action;     ///< the action
  double begin = 0;  ///< its start, from the start of the step
  double end = 0;    ///< its end, from the start of the step
};

/// The times of all actions of a schedule.
struct Timeline {
  std::vector<std::vector<Span>> ranks;  ///< by rank: its actions, in order
  double length = 0;                     ///< the end of the last action

  /// Returns the part of `length` in which `rank` is idle, from 0 to 1. Throws ContractError if
  /// there is no such rank.
  [[nodiscard]] double idle(int rank) const;
  /// Returns the mean of `idle` over all ranks: the pipeline's bubble.
  [[nodiscard]] double bubble() const;
};

/// Returns the times of all actions of `schedule`. Links have unlimited bandwidth, and no time is
/// lost between actions. Throws ConfigError as `check`, and for costs that are negative, not
/// finite, or of another number of stages.
[[nodiscard]] Timeline play(const Schedule& schedule, const Costs& costs = {});

/// Returns the bubble of GPipe and 1F1B with equal stages, and of interleaved 1F1B with `chunks`
/// stages a rank, for P ranks and M micro-batches: (P - 1) / (chunks * M + P - 1). Throws
/// ContractError for a number below 1.
[[nodiscard]] double bubble_by_formula(int ranks, int micro_batches, int chunks = 1);

/// Returns a drawing of a timeline in whole units of time, with a line for each rank and a column
/// for each unit. A forward pass shows the last digit of the micro-batch, a backward pass or its
/// first half the micro-batch's letter (a, b, c ...), gradients of weights its capital letter, and
/// an idle rank a dot. Throws ConfigError for a length above 1,000,000.
[[nodiscard]] std::string draw(const Timeline& timeline);

}  // namespace tessera::pipeline

#pragma once

#include <string>
#include <vector>

#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {

/// How long the work of one stage takes for one micro-batch, in any unit of time.
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;  ///< Work::backward takes both
};

/// What a timeline is played with.
struct Costs {
  std::vector<StageCosts> stages;  ///< by stage; one entry stands for all stages
  double transfer = 0;             ///< from the end of an action to its data's arrival elsewhere
};

/// An action and when it runs.
struct Span {
  Action action;
  double begin = 0;
  double end = 0;
};

/// A schedule in time.
struct Timeline {
  std::vector<std::vector<Span>> ranks;  ///< by rank, in order
  double length = 0;                     ///< to the end of the last action

  /// Returns the part of `length` in which a rank has nothing to do, from 0 to 1. Throws
  /// ContractError if there is no such rank.
  [[nodiscard]] double idle(int rank) const;
  /// Returns the mean of `idle` over ranks: the pipeline's bubble.
  [[nodiscard]] double bubble() const;
};

/// Plays `schedule` with an unlimited link and no time lost between actions. Throws ConfigError as
/// `check`, and for costs that are negative, not finite, or of another number of stages.
[[nodiscard]] Timeline play(const Schedule& schedule, const Costs& costs = {});

/// Returns the bubble of GPipe and 1F1B with equal stages, and of interleaved 1F1B with `chunks`
/// stages a rank: (P - 1) / (chunks * M + P - 1). Throws ContractError for a number below 1.
[[nodiscard]] double bubble_by_formula(int ranks, int micro_batches, int chunks = 1);

/// Draws a timeline of whole units of time, a line a rank and a column a unit: the micro-batch's
/// last digit in a forward pass, its letter (a, b, c ...) in a backward pass or its first half, its
/// capital letter in gradients of weights, and a dot where the rank waits.
[[nodiscard]] std::string draw(const Timeline& timeline);

}  // namespace tessera::pipeline

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {

/// The progress of a complete schedule: which action a rank makes next, and what it needs.
class Progress {
 public:
  explicit Progress(const Schedule& schedule);

  /// Returns the next action of `rank`, or null after its last one.
  [[nodiscard]] const Action* next(int rank) const;
  /// Returns the action that `action` needs, of another stage or, for a halved backward pass, of
  /// its own.
  [[nodiscard]] std::optional<Action> needs(const Action& action) const;
  /// Returns when an action's result was ready; nothing if it was not made yet.
  [[nodiscard]] std::optional<double> done(const Action& action) const;
  /// Notes that the next action of `rank` ends at `time`.
  void make(int rank, double time);

 private:
  /// The gradient of a stage's input comes from either kind of backward pass.
  enum Part : std::size_t { forward, input, weight, kParts };
  [[nodiscard]] std::size_t index(int stage, int micro_batch, Part part) const;
  [[nodiscard]] static Part part_of(Work work) noexcept;

  const Schedule& schedule_;
  std::vector<std::size_t> made_;             // by rank
  std::vector<std::optional<double>> times_;  // by stage, micro-batch and part
};

}  // namespace tessera::pipeline

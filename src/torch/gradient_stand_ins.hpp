#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "torch/parameter_home.hpp"

namespace tessera::torch {

struct Use;

/// What the gradients of a sharded module are to a program after a backward pass: tensors without
/// memory that stand for gradients of which each rank keeps a part.
///
/// Functions that people call between backward and step find them: `clip_grad_norm_` and loops like
/// it get the norms of whole gradients and multiply every rank's part; `zero_grad` drops them; an
/// optimizer of libtorch, and whatever else would read or write elements, is refused.
///
/// Threads: the rank's own.
class GradientStandIns {
 public:
  /// Both outlive it.
  GradientStandIns(ShardedModel& model, std::deque<ParameterHome>& homes)
      : model_{model}, homes_{homes} {}

  /// Runs an operator of which an argument is such a stand-in, in place of libtorch: takes the
  /// arguments from `stack` and puts the result there. Returns false if the operator is to run as
  /// it is: no argument is one, or it makes a view. Throws ContractError for any other operator.
  [[nodiscard]] static bool run(std::span<const Use> uses, const c10::OperatorHandle& op,
                                ::torch::jit::Stack& stack);

  /// Whether gradients wait for the step, and the program has set all of them to zero, or removed
  /// them (zero_grad).
  [[nodiscard]] bool all_are_dropped() const;
  /// Sets to zero what the program has dropped of those that wait.
  void clear_dropped();
  /// Norms are computed anew when they are next asked for.
  void forget_norms() noexcept {
    norms_.clear();
    number_.reset();
  }
  /// Throws ContractError if the program has given a parameter another gradient for the step.
  void require_own() const;

 private:
  class Call;

  [[nodiscard]] double norm_of(const ParameterHome& home, Norm norm);
  void multiply(const ParameterHome& home, float factor);
  [[nodiscard]] double value_of(const at::Tensor& number);
  /// Whether any gradient waits for the step.
  [[nodiscard]] bool any_waits() const;

  ShardedModel& model_;
  std::deque<ParameterHome>& homes_;
  std::map<Norm, std::vector<std::vector<double>>> norms_;  // as gradient_norms returns them
  at::Tensor number_;  // the last that value_of was asked for, at this version
  std::int64_t version_ = 0;
  double value_ = 0.0;
};

}  // namespace tessera::torch

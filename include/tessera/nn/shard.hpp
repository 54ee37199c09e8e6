#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// A model that brings its own computation: it declares its units into a ShardedModel, keeps the
/// reference, and is then called through scopes of its own opening. `loss` is the address, in
/// device memory, of this rank's mean loss over the step's micro-batches (or null).
template <class M>
concept Module = std::move_constructible<M> &&
                 requires(M net, const M& constant, ShardedModel& model, std::uint64_t seed) {
                   net.declare(model);
                   { constant.initializer(seed) } -> std::convertible_to<Initializer>;
                   { constant.loss() } -> std::convertible_to<const double*>;
                 };

/// A module and the ShardedModel that holds its state. Made by `shard`; stays where it is made.
/// Every call is made by all ranks; the contracts are those of ShardedModel and of the module.
template <Module M>
class Sharded {
 public:
  Sharded(M net, World& world, const ModelOptions& options)
      : model_{world, options}, net_{std::move(net)} {
    net_.declare(model_);
  }

  /// Allocates and initialises as the module says, the same for any number of ranks.
  void materialize(std::uint64_t seed) { model_.materialize(net_.initializer(seed)); }
  void materialize(const Initializer& initial) { model_.materialize(initial); }
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options = {}) {
    model_.optimize_with(optimizer, options);
  }

  /// One micro-batch: as the module's own.
  template <class... Arguments>
  void forward_backward(Arguments&&... arguments) {
    net_.forward_backward(std::forward<Arguments>(arguments)...);
  }
  void set_learning_rate(float lr) { model_.set_learning_rate(lr); }
  void step() { model_.step(net_.loss()); }
  [[nodiscard]] StepReport report() const { return model_.report(); }
  [[nodiscard]] StepReport previous_report() const { return model_.previous_report(); }

  [[nodiscard]] ShardedModel& model() noexcept { return model_; }
  [[nodiscard]] M& module() noexcept { return net_; }

 private:
  ShardedModel model_;
  M net_;  // after the model it refers to
};

/// Puts `net` under a strategy: `auto gpt = tessera::shard(nn::GPT(config), world, options);`
template <Module M>
[[nodiscard]] Sharded<M> shard(M net, World& world, const ModelOptions& options = {}) {
  return Sharded<M>(std::move(net), world, options);
}

}  // namespace tessera

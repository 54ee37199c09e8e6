#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// A model with its own computation. It declares its units in a ShardedModel, keeps the reference,
/// and computes in scopes that it opens itself. `loss` returns the device address of this rank's
/// mean loss over the step's micro-batches, or null. A module whose loss does not count every token
/// also has `count`, which returns a LossCount.
template <class M>
concept Module = std::move_constructible<M> &&
                 requires(M net, const M& constant, ShardedModel& model, std::uint64_t seed) {
                   net.declare(model);
                   { constant.initializer(seed) } -> std::convertible_to<Initializer>;
                   { constant.loss() } -> std::convertible_to<const double*>;
                 };

/// A module and the ShardedModel that holds its state. `shard` makes it; it cannot be moved. All
/// ranks make every call. The contracts are those of ShardedModel and of the module.
template <Module M>
class Sharded {
 public:
  /// Declares `net` in a new model of `world`.
  Sharded(M net, World& world, const ModelOptions& options)
      : model_{world, options}, net_{std::move(net)} {
    net_.declare(model_);
  }

  /// Allocates and initialises the model by the module's initializer, with the same values for any
  /// number of ranks.
  void materialize(std::uint64_t seed) { model_.materialize(net_.initializer(seed)); }
  /// Calls ShardedModel::materialize.
  void materialize(const Initializer& initial) { model_.materialize(initial); }
  /// Calls ShardedModel::optimize_with.
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options = {}) {
    model_.optimize_with(optimizer, options);
  }

  /// Runs one micro-batch by calling the module's forward_backward.
  template <class... Arguments>
  void forward_backward(Arguments&&... arguments) {
    net_.forward_backward(std::forward<Arguments>(arguments)...);
  }
  /// Runs all micro-batches of a step by calling the module's run.
  template <class... Arguments>
  void run(Arguments&&... arguments) {
    net_.run(std::forward<Arguments>(arguments)...);
  }
  /// Calls ShardedModel::set_learning_rate.
  void set_learning_rate(float lr) { model_.set_learning_rate(lr); }
  /// Calls ShardedModel::step with the module's loss, and with its count if it has one.
  void step() {
    if constexpr (requires {
                    { net_.count() } -> std::convertible_to<LossCount>;
                  }) {
      model_.step(net_.loss(), net_.count());
    } else {
      model_.step(net_.loss());
    }
  }
  /// Calls ShardedModel::report.
  [[nodiscard]] StepReport report() const { return model_.report(); }
  /// Calls ShardedModel::previous_report.
  [[nodiscard]] StepReport previous_report() const { return model_.previous_report(); }

  /// Returns the model, which lives as long as this object.
  [[nodiscard]] ShardedModel& model() noexcept { return model_; }
  /// Returns the module, which lives as long as this object.
  [[nodiscard]] M& module() noexcept { return net_; }

 private:
  ShardedModel model_;
  M net_;  // after the model it refers to
};

/// Puts `net` under a strategy: `auto gpt = tessera::shard(nn::Decoder(config), world, options);`
template <Module M>
[[nodiscard]] Sharded<M> shard(M net, World& world, const ModelOptions& options = {}) {
  return Sharded<M>(std::move(net), world, options);
}

}  // namespace tessera

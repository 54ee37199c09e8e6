#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/engine/init.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/engine/tensor.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/shard/layout.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// *Collective.* By rank, what tells its machine from others (or TESSERA_MACHINE): of as many ranks
/// as each has, side by side, hybrid makes a group where `shard_group` is 0.
[[nodiscard]] std::vector<std::string> machines_of_ranks(World& world);

class ForwardScope;
class BackwardScope;
class Evaluation;

/// A model whose parameters, gradients and optimizer state are held over the ranks of a world as
/// its strategy says. The trainer brings the computation; the model hands out pointers.
///
///   declared --materialize--> ready --optimize_with--> trainable
///   trainable: (forward scopes, backward scopes) x accumulate, then step(), again and again
///   ready, trainable between steps: evaluate(), then forward scopes only
///
/// Order:   every call is made by all ranks, in the same order with the same units. The order of
///          scopes is recorded in the first micro-batch, which gathers without prefetch unless
///          `declare_order` was called; ranks whose order differs get an error that names the
///          first differing entry.
/// Time:    scopes and `step` enqueue; on a CPU the compute stream is the calling thread, so a
///          scope's opening waits for its gather and `step` returns when the update is done, unless
///          the update is offloaded.
/// Memory:  state, slots and optimizer are each allocated once, in `materialize` and
///          `optimize_with`; a step allocates nothing.
/// Errors:  ContractError for calls out of order; CommError and DeviceError end the model.
/// Threads: the rank's own thread.
class ShardedModel {
 public:
  /// ConfigError if a combination of options is not supported, or if one has no effect under the
  /// strategy (it says what is, and where it has).
  explicit ShardedModel(World& world, const ModelOptions& options = {});
  /// Within the rank's body, after every scope and Evaluation of the model. Never throws: what is
  /// still open is named by the end of the body.
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Declares a unit, before `materialize`. `name` is unique in the model. ConfigError if the model
  /// then has more than 2^50 elements.
  Unit add_unit(std::string name, std::vector<ParameterSpec> parameters, UnitOptions options = {});

  /// Declares that every forward pass opens exactly these scopes in this order and every backward
  /// pass the reverse, so that the first step prefetches too, and that there are slots for the
  /// gradients of all blocks that are on their way back at once: a block that is used several times
  /// (A B C A B C) is from its first backward scope to its last. Optional, before `materialize`.
  void declare_order(const std::vector<Unit>& forward);

  /// *Collective.* Lays out, allocates and initialises; each rank asks `initial` only for what it
  /// keeps.
  void materialize(const Initializer& initial);

  /// *Collective.* Allocates and zeroes the optimizer's state for what this rank updates.
  /// ContractError that names the first difference if a rank brings other values. ConfigError for a
  /// group without a trainable parameter, and for options that have no effect.
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options = {});

  /// Opens a unit for its forward pass. ContractError if all slots are in open scopes.
  [[nodiscard]] ForwardScope forward(Unit unit);
  /// Opens a unit for its backward pass. As many times in a micro-batch as `forward`. ContractError
  /// if its gradients go to a slot and all are taken: by blocks that are open, or whose backward
  /// has been opened less often than their forward. There are two slots, or as many as the declared
  /// order needs.
  [[nodiscard]] BackwardScope backward(Unit unit);

  /// *Collective.* Between steps, or before the first: the model is evaluated while the result
  /// lives. ContractError where a step has begun. A model for inference has no other use.
  [[nodiscard]] Evaluation evaluate();

  /// Every step from the next on uses this rate, and groups their multiple of it. All ranks give
  /// the same: `step` compares it with what it sends anyway, and rates that differ are a CommError
  /// that names two ranks and their rates.
  void set_learning_rate(float lr);

  /// *Collective.* Averages what has been accumulated, clips, and updates. `loss`, if given, is
  /// the address (device memory) of this rank's mean loss over its micro-batches, for the report.
  /// ContractError unless exactly `accumulate` micro-batches have been run, and in the first step
  /// if the loss is to be scaled and nobody has asked for `loss_scale` since `optimize_with`. What
  /// ModelOptions::checks finds at the end of a micro-batch is a ContractError here, or in the
  /// first forward scope of the next one.
  ///
  /// Where the gradient is not finite on some rank, no rank updates anything, and the loss scale
  /// backs off. NumericError, the same on all ranks, if this has now happened `max_skips` times in
  /// a row or more: it names the first unit whose watched output (else whose gradient) was not
  /// finite. The step has then been made, and the model can go on.
  void step(const double* loss = nullptr);
  /// Device memory: the factor by which the trainer multiplies the gradient of its loss (not the
  /// loss), read on the compute stream in every micro-batch; the update divides by it. 1 unless
  /// ModelOptions::loss_scaling says otherwise. Null, for 1, before `optimize_with`.
  [[nodiscard]] const float* loss_scale() const;

  /// The last step's outcome; waits for it.
  [[nodiscard]] StepReport report() const;
  /// That of the step before the last; does not wait for the last, with which a device stays busy
  /// meanwhile. ContractError if no two steps have been made since `optimize_with`.
  [[nodiscard]] StepReport previous_report() const;

  /// Optimizer steps made, those that were skipped among them.
  [[nodiscard]] std::int64_t steps() const noexcept;

  /// *Collective.* Calls `sink` on every rank, in order of registration, with each whole
  /// parameter or gradient in host memory (valid during the call), widened to fp32. Gathers one
  /// unit at a time.
  void export_state(StateTensor what,
                    const std::function<void(const ParameterInfo&, std::span<const float>)>& sink);

  /// Calls `sink` with the fp32 values that this rank's optimizer updates: master weights, joined
  /// where they are kept as remainders, or the parameters themselves where they are fp32. In host
  /// memory (valid during the call), in pieces:
  /// elements [first, first + values.size()) of the parameter. Frozen parameters have none. Ranks
  /// that keep copies (those along the mesh's `replicate`) are all handed the same.
  void export_masters(const std::function<void(const ParameterInfo&, std::int64_t first,
                                               std::span<const float> values)>& sink);

  [[nodiscard]] World& world();
  [[nodiscard]] const ModelOptions& options() const noexcept;
  /// Distinct parameters of the whole model, without padding.
  [[nodiscard]] std::int64_t parameter_elems() const;
  [[nodiscard]] ModelStateBytes state_bytes() const;
  [[nodiscard]] const UnitLayout& layout(Unit unit) const;
  [[nodiscard]] const std::string& unit_name(Unit unit) const;
  [[nodiscard]] std::size_t unit_count() const noexcept;
  /// The unit that was declared at place `index`, from 0.
  [[nodiscard]] Unit unit(std::size_t index) const;

  struct State;

 private:
  friend class Scope;
  friend class ForwardScope;
  friend class BackwardScope;
  friend class Evaluation;
  /// ContractError if the world has ended.
  [[nodiscard]] State& live() const;
  std::shared_ptr<State> state_;
};

/// An open use of a unit, forward or backward: its parameters are whole on this rank. A layer's
/// forward takes either kind, so that it can be run once more in the backward scope (recompute).
/// It ends before its model: one that does not keeps the model's memory until it does, and the
/// rank's body ends with a ContractError that names the unit.
class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// ContractError that lists the unit's parameters if it has none called `name`.
  [[nodiscard]] ConstTensor operator[](std::string_view name) const;
  /// The stream on which the parameters are ready and on which kernels must run.
  [[nodiscard]] Stream stream() const;

 protected:
  Scope(std::shared_ptr<ShardedModel::State> model, Unit unit) noexcept;
  ~Scope() = default;
  [[nodiscard]] bool unwinding() const noexcept;

  std::shared_ptr<ShardedModel::State> model_;
  Unit unit_;

 private:
  int exceptions_;
};

/// While it lives, a unit's parameters are whole on this rank. Ends at the brace: what follows is
/// enqueued there and never throws; a failure is kept and thrown by the next call on the model.
class ForwardScope : public Scope {
 public:
  ~ForwardScope();

  /// Tells what the unit has computed, valid on the scope's stream until the scope ends. It is
  /// looked at only in a step that may be the last of `max_skips` skipped ones, so that the unit
  /// can be named in which the first value that is not finite arose; else this does nothing. All
  /// ranks watch the same.
  void watch(ConstView output) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// While it lives, a unit's parameters and its full gradients are whole on this rank; at its end
/// the gradients go on their way to where the strategy keeps them.
class BackwardScope : public Scope {
 public:
  ~BackwardScope();

  /// Gradient of this rank's loss; kernels add into it (see GradientInit). ContractError if the
  /// parameter is frozen (ask `has_grad`).
  [[nodiscard]] Tensor grad(std::string_view name) const;
  [[nodiscard]] bool has_grad(std::string_view name) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// While it lives, the model is evaluated: scopes are forward ones, in as many passes as wanted,
/// and nothing of the training changes: no gradient, no bit of a later step, no byte of the peak.
///
///   auto evaluation = model.evaluate();
///   for (batch of the validation set) { (forward scopes); evaluation.end_pass(); }
///
/// Order:   every rank opens the same units in the same order. Units are gathered ahead as in
///          training, in the order of the training or of the pass before; the order may change.
/// Memory:  the slots of the training; what is kept over a pass (root units) is given back at its
///          end.
/// Ends at the brace and never throws there: a failure is kept and thrown by the next call on the
/// model, which ends after this object (as for a Scope).
class Evaluation {
 public:
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();

  /// Ends a pass, as the object's end does too. ContractError if a scope is open.
  void end_pass();

 private:
  friend class ShardedModel;
  explicit Evaluation(std::shared_ptr<ShardedModel::State> model) noexcept
      : model_{std::move(model)} {}

  std::shared_ptr<ShardedModel::State> model_;
};

}  // namespace tessera

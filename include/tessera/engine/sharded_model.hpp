#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/engine/init.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/engine/scope.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/engine/tensor.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/shard/layout.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

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
/// Threads: scopes, steps and reports may come from any thread, one at a time; all else is the
///          rank's own thread's.
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

  /// Opens a unit for its forward pass, in the micro-batch under way; a forward scope after
  /// backward scopes begins the next one. ContractError if all slots are in open scopes.
  [[nodiscard]] ForwardScope forward(Unit unit);
  /// Opens a unit for its backward pass. As many times in a micro-batch as `forward`. ContractError
  /// if its gradients go to a slot and all are taken: by blocks that are open, or whose backward
  /// has been opened less often than their forward. There are two slots, or as many as the declared
  /// order needs.
  [[nodiscard]] BackwardScope backward(Unit unit);

  /// The same for micro-batch `micro_batch` of the step, from 0, where several are in flight
  /// (F1 F2 B1 F3 B2 B3): the results have the bits of one after the other. Micro-batches begin in
  /// order, and each has all of its forward scopes before its backward ones. A unit's backward
  /// scopes come in the order of micro-batches. A unit that stays gathered until its last use in a
  /// micro-batch stays until its last in all that are in flight. Activations are the caller's.
  /// ContractError for a micro-batch that is out of order, or for a call without one where several
  /// are in flight.
  [[nodiscard]] ForwardScope forward(Unit unit, int micro_batch);
  [[nodiscard]] BackwardScope backward(Unit unit, int micro_batch);

  /// Whether every scope of `unit` hands out its parameters, or its gradients, at the same
  /// addresses, from `materialize` until the model ends. Parameters do where ranks hold them whole,
  /// and where the unit has a slot of its own (root units, Reshard::after_backward,
  /// `persist_elems`); gradients where they are whole and stay, and those of root units. What lies
  /// there is the unit's only while one of its scopes is open.
  [[nodiscard]] bool stays_in_place(Unit unit, StateTensor what) const;

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

 private:
  /// ContractError if the world has ended.
  [[nodiscard]] engine::Model& live() const;
  /// ContractError that names `call` unless `unit` is of this model.
  [[nodiscard]] std::size_t index_of(Unit unit, const char* call) const;
  /// Returns the micro-batch.
  int open(engine::UseKind kind, Unit unit, std::optional<int> micro_batch);

  std::shared_ptr<engine::Model> model_;
};

}  // namespace tessera

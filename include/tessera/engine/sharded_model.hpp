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

namespace engine {
class TrainingState;
}

/// A model whose parameters, gradients and optimizer state are distributed over the ranks of a
/// World by a strategy. The trainer does the computation; the model hands out pointers.
///
///     declared --materialize--> ready --optimize_with--> trainable
///     trainable: (forward scopes, backward scopes) x accumulate, then step(), again and again
///     ready, trainable between steps: evaluate(), then forward scopes only
///
/// Order:   every call is made by all ranks, in the same order with the same units. The order of
///          scopes is recorded in the first micro-batch, which gathers without prefetch unless
///          `declare_order` was called. Ranks whose order differs get an error that names the first
///          entry that differs.
/// Time:    scopes and `step` enqueue. On a CPU the compute stream is the calling thread, so
///          opening a scope waits for its gather, and `step` returns when the update is done,
///          unless the update is offloaded.
/// Memory:  state and slots are allocated in `materialize`, the optimizer's state in
///          `optimize_with`. A step allocates nothing. The model borrows the World.
/// Errors:  ContractError for calls out of order and for a unit of another model. CommError and
///          DeviceError end the model. Once the World has ended, calls that need it throw
///          ContractError.
/// Threads: scopes, steps and reports may come from any thread, one at a time. All other calls are
///          made on the rank's own thread.
class ShardedModel {
 public:
  /// Declares a model without units. Throws ConfigError as `validate` does for these options in a
  /// job of this size.
  explicit ShardedModel(World& world, const ModelOptions& options = {});
  /// Ends the model, within the rank's body and after all of its scopes and Evaluations. It never
  /// throws. If one of them is still open, the end of the rank's body throws a ContractError that
  /// names it.
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Declares a unit, before `materialize`. `name` is not empty and unique in the model. Throws
  /// ContractError for parameters that UnitLayout::make refuses or that are tied to no earlier
  /// parameter of equal shape. Throws ConfigError for an option without effect, and if the model
  /// then has more than 2^50 elements.
  Unit add_unit(std::string name, std::vector<ParameterSpec> parameters, UnitOptions options = {});

  /// Declares that every forward pass opens exactly these scopes in this order, and every backward
  /// pass opens them in reverse. The first step then prefetches too, and there are slots for the
  /// gradients of all blocks that need one at once: a block that is used several times (A B C A B
  /// C) needs its slot from its first backward scope to its last. Units that this rank does not
  /// have are left out. The call is optional and comes before `materialize`.
  void declare_order(const std::vector<Unit>& forward);

  /// *Collective.* Lays out, allocates and initialises the parameters. Each rank asks `initial`
  /// only for the elements that it keeps. If `initial` throws or memory runs out, the model stays
  /// declared. Throws ConfigError for options that do not fit the units, ContractError if ranks
  /// declare different models, and ConfigError, on the ranks that keep them, for finite values that
  /// the parameter's dtype rounds to infinity. init::normal is refused on all ranks of the unit if
  /// its standard deviation may give such values.
  void materialize(const Initializer& initial);

  /// *Collective.* Allocates and zeroes the optimizer's state for the elements that this rank
  /// updates. It is called once. Throws ContractError that names the first difference if ranks give
  /// different values, and ConfigError for a group without a trained parameter or an option without
  /// effect.
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options = {});

  /// Opens a unit for its forward pass, in the current micro-batch. A forward scope after backward
  /// scopes begins the next micro-batch. Throws ContractError if the unit is open already or open
  /// scopes hold all slots.
  [[nodiscard]] ForwardScope forward(Unit unit);
  /// Opens a unit for its backward pass, as many times in a micro-batch as its forward pass. Throws
  /// ContractError if its gradients need a slot and none is free. A block takes a slot while it is
  /// open, and while its backward has been opened less often than its forward. There are
  /// ModelTuning::gradient_slots, or as many as the declared order needs.
  [[nodiscard]] BackwardScope backward(Unit unit);

  /// Opens a unit for the forward pass of micro-batch `micro_batch` of the step, from 0, for steps
  /// with several micro-batches in flight (F1 F2 B1 F3 B2 B3). The results have the bits of one
  /// micro-batch after the other. Micro-batches begin in order, and each has all of its forward
  /// scopes before its backward scopes. A unit's backward scopes come in the order of
  /// micro-batches. A unit that stays gathered until its last use in a micro-batch stays gathered
  /// until its last use in all micro-batches in flight. The caller keeps the activations of each.
  /// Throws ContractError for a micro-batch out of order; the calls above throw it while several
  /// are in flight.
  [[nodiscard]] ForwardScope forward(Unit unit, int micro_batch);
  /// Opens a unit for the backward pass of micro-batch `micro_batch` of the step, from 0, under the
  /// rules of `forward` with a micro-batch.
  [[nodiscard]] BackwardScope backward(Unit unit, int micro_batch);
  /// Opens the parameters of a unit for a micro-batch in flight, at any time and any number of
  /// times: it counts neither as a forward nor as a backward scope. A divided backward pass
  /// computes the gradients of its inputs in such a scope, while earlier micro-batches still lack
  /// their gradients of weights. Throws ContractError for a micro-batch that is not in flight.
  [[nodiscard]] ReadScope read(Unit unit, int micro_batch);

  /// Opens a unit for a program that learns from an autograd engine which unit is next: at any
  /// time in a step, in any order, any number of times. `backward` tells what the trace shows and
  /// how far units are gathered ahead. Scopes are not counted: a forward scope without a backward
  /// scope changes nothing, so that a pass can be dropped. Where the scope asks for gradients
  /// (OpenScope::grad), they are reduced at its end and added to those that the step has. Such a
  /// step has no micro-batches, and `step` may follow any scope; gradients are averaged over ranks
  /// and over ModelOptions::accumulate all the same. Between two scopes, `evaluate`, exports of
  /// parameters and saves are possible.
  ///
  /// Memory: where gradients are reduced in place (ddp, zero1 and dp with `accumulate` 1), slots
  ///         are made when a step first adds gradients to reduced ones: as many and as large as
  ///         those that zero2 has. They stay.
  /// Throws ContractError in a step with scopes of `forward`, if the unit is open already or open
  /// scopes hold all slots; ConfigError unless ModelOptions::checks is off.
  [[nodiscard]] OpenScope open_any(Unit unit, bool backward);
  /// *Collective.* Drops the gradients of this step's scopes of `open_any`: the step begins anew.
  /// It does nothing if there are none. Throws ContractError while a scope is open, during an
  /// evaluation, and in a step with scopes of `forward`.
  void discard();

  /// Returns whether every scope of `unit` hands out its parameters, or its gradients, at the same
  /// addresses from `materialize` until the model ends. Parameters stay in place if ranks hold them
  /// whole or the unit has a slot of its own (root units, Reshard::after_backward,
  /// `persist_elems`). Gradients stay in place if they are kept whole, and for root units. The
  /// memory belongs to the unit only while one of its scopes is open.
  [[nodiscard]] bool stays_in_place(Unit unit, StateTensor what) const;

  /// *Collective.* Begins an evaluation, which lasts as long as the result lives. Throws
  /// ContractError while a step is in progress or another evaluation lives. A model for inference
  /// has no other use.
  [[nodiscard]] Evaluation evaluate();

  /// Leaves a trained parameter as it is until `unfreeze`. In the steps between, scopes hand out no
  /// gradient of it (BackwardScope::has_grad is false), and neither moments nor weight decay move
  /// it. Its value and its optimizer state are kept as they are, take the same memory, and are in
  /// checkpoints; its training later goes on from there. Updates count in Adam's corrections of
  /// its moments while it is frozen too. That it is frozen is not in checkpoints, and a load does
  /// not change it. An alias stands for its owner. All ranks freeze the same: `step` compares, at
  /// no further communication, and throws CommError if they differ. Throws ContractError before
  /// `materialize`, in a model for inference, for a parameter that was declared frozen, and while a
  /// step is under way in which its gradient was handed out.
  void freeze(Unit unit, std::string_view parameter);
  /// Trains a parameter again that `freeze` has frozen. Throws ContractError as `freeze`.
  void unfreeze(Unit unit, std::string_view parameter);

  /// Sets the learning rate of the next and all later steps; groups use their multiple of it. All
  /// ranks give the same rate: `step` compares the rates, at no further communication, and throws
  /// CommError that names two ranks and their rates if they differ. Throws ContractError before
  /// `optimize_with`, and unless `lr` is finite and 0 or more.
  void set_learning_rate(float lr);

  /// *Collective.* Averages the accumulated gradients, clips them and updates the parameters.
  /// `loss`, if given, is the device address of this rank's mean loss over its micro-batches, for
  /// the report. All ranks give it, or none; on a mesh with `pipe` all ranks of one place give it,
  /// and the others null. Along `tensor`, where all ranks have the same loss, the first rank's is
  /// used. Ranks that do otherwise get a ContractError in the first step, and later a CommError, or
  /// on meshes with `tensor` or `pipe`, where a rank gives it in every step or in none, a
  /// ContractError. Throws ContractError unless exactly `accumulate` micro-batches have been run,
  /// and in the first step if the loss is scaled but `loss_scale` has not been called since
  /// `optimize_with`. A mistake that ModelOptions::checks finds at the end of a micro-batch is a
  /// ContractError here, or in the first forward scope of the next micro-batch.
  ///
  /// If the gradient is not finite on some rank, no rank updates anything, and a dynamic loss scale
  /// falls. Throws NumericError, the same on all ranks, once this has happened at least `max_skips`
  /// times in a row. It names the first unit whose watched output (else whose gradient) was not
  /// finite. The step then counts as made, and the model can go on.
  ///
  /// With `count` the reported loss, the gradients and their norm are divided by the fraction of
  /// tokens that counted on all ranks together; where none did, they are 0. Every rank gives the
  /// same `count.of`, and `count.counted` if it gives a loss. Gradients that `export_state` and
  /// `gradient_norms` return before the step are not divided. Throws ContractError for a count
  /// below 0, one without a loss, or one of the two members without the other; CommError if the
  /// ranks' `of` differ.
  void step(const double* loss = nullptr, const LossCount& count = {});
  /// Returns the device address of the loss scale: the factor by which the trainer multiplies the
  /// gradient of its loss (not the loss). It is read on the compute stream in every micro-batch,
  /// and the update divides by it. It is 1 unless ModelOptions::loss_scaling says otherwise. Before
  /// `optimize_with` the address is null, which means 1.
  [[nodiscard]] const float* loss_scale() const;

  /// Waits for the last step and returns its report. Throws ContractError if no step has been made
  /// since the model was made or loaded from a checkpoint.
  [[nodiscard]] StepReport report() const;
  /// Returns the report of the step before the last, without waiting for the last, so that the
  /// device stays busy. Throws ContractError if fewer than two steps have been made since the model
  /// was made or loaded from a checkpoint.
  [[nodiscard]] StepReport previous_report() const;

  /// Returns the number of steps made, including skipped steps and the steps before the checkpoint
  /// that the model was loaded from.
  [[nodiscard]] std::int64_t steps() const noexcept;

  /// *Collective.* Calls `sink` on every rank, in order of declaration, with each whole parameter
  /// or gradient in host memory (valid during the call), widened to fp32. Gradients are those
  /// before `step` divides them by what counted (LossCount). Tied parameters come once, with their
  /// owner. Units are gathered one at a time. On a mesh with `tensor` or `pipe` the ranks' parts
  /// are assembled too, one tensor at a time in device memory. Throws ContractError for parameters
  /// while a step is in progress, and for gradients except between the last micro-batch and `step`.
  void export_state(StateTensor what,
                    const std::function<void(const ParameterInfo&, std::span<const float>)>& sink);

  /// *Collective.* Waits, and returns the norm of each parameter's gradient, averaged over ranks
  /// and micro-batches, before `step` divides it by what counted (LossCount): by the index of its
  /// unit, then by its place in the unit. The norms have the same bits on every rank and under
  /// every strategy. Parameters without a gradient of their own (frozen, tied to another) have 0.
  /// One all-reduce and a meeting of ranks; the sums take device memory during the call, 8 bytes
  /// for each parameter and rank. On a mesh with `tensor` or `pipe` the step's gradients are then
  /// final: more of them are a ContractError. Ranks of which only some call it get CommError.
  /// Throws ContractError except between the last micro-batch and `step`, and ConfigError if the
  /// host updates a unit (Offload::optimizer): let OptimizerOptions::clip_norm clip there.
  [[nodiscard]] std::vector<std::vector<double>> gradient_norms(Norm norm = Norm::two);
  /// *Collective.* Multiplies the gradient of a parameter that `step` will use by `factor`. Reports
  /// and OptimizerOptions::clip_norm see the result. An alias stands for its owner. Ranks make the
  /// same calls in the same order: `step` compares them, and throws CommError if they differ. It
  /// enqueues, and nothing travels but gradients that are not reduced yet. Throws as
  /// `gradient_norms`, and for a frozen parameter.
  void scale_gradient(Unit unit, std::string_view parameter, float factor);
  /// *Collective.* Sets such a gradient to 0, whatever it is. All else as `scale_gradient`.
  void clear_gradient(Unit unit, std::string_view parameter);

  /// Calls `sink` with the fp32 values that this rank's optimizer updates: master weights, also if
  /// they are kept as remainders, or fp32 parameters themselves. They come in pieces in host memory
  /// (valid during the call): elements [first, first + values.size()) of the whole parameter. There
  /// are none for frozen parameters and for units at other places along `pipe`. Ranks with copies
  /// (along the mesh's `replicate`, and along `tensor` for parameters that are not cut) all get the
  /// same values.
  void export_masters(const std::function<void(const ParameterInfo&, std::int64_t first,
                                               std::span<const float> values)>& sink);

  /// Returns the World that the model was made in.
  [[nodiscard]] World& world();
  /// Returns the options that the model was made with.
  [[nodiscard]] const ModelOptions& options() const noexcept;
  /// Returns the number of distinct elements of the whole model, without padding.
  [[nodiscard]] std::int64_t parameter_elems() const;
  /// Returns the units that this rank keeps whole although the strategy shards them
  /// (ModelOptions::keep_whole): none before `materialize`.
  [[nodiscard]] std::vector<WholeUnits> whole_units() const;
  /// Returns the bytes that this rank keeps between steps: all 0 before `materialize`.
  [[nodiscard]] ModelStateBytes state_bytes() const;
  /// Returns the layout of the parameters of `unit`. The reference is valid until the next
  /// `add_unit`.
  [[nodiscard]] const UnitLayout& layout(Unit unit) const;
  /// Returns the name of `unit`. The reference is valid until the next `add_unit`.
  [[nodiscard]] const std::string& unit_name(Unit unit) const;
  /// Returns whether this rank has `unit`: the unit is at this rank's place along the mesh's
  /// `pipe`, or owns a parameter that is tied to a unit there. The result is final once all units
  /// are declared.
  [[nodiscard]] bool has(Unit unit) const;
  /// Returns the number of declared units.
  [[nodiscard]] std::size_t unit_count() const noexcept;
  /// Returns the unit with index `index` in the order of declaration, from 0. Throws ContractError
  /// if there is none.
  [[nodiscard]] Unit unit(std::size_t index) const;

 private:
  friend class engine::TrainingState;

  /// Throws ContractError if the World has ended.
  [[nodiscard]] engine::Model& live() const;
  /// Returns the place of `unit`. Throws ContractError that names `call` unless it is of this
  /// model.
  [[nodiscard]] std::size_t index_of(Unit unit, const char* call) const;
  /// Opens `unit` and returns its micro-batch.
  int open(engine::UseKind kind, Unit unit, std::optional<int> micro_batch);

  std::shared_ptr<engine::Model> model_;
};

}  // namespace tessera

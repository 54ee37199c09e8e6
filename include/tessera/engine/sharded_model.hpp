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

#include "tessera/base/values.hpp"
#include "tessera/comm/world.hpp"
#include "tessera/engine/checks.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/engine/loss_scaling.hpp"
#include "tessera/engine/master_weights.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera {

enum class Purpose : std::uint8_t {
  training,
  inference,  ///< only ever evaluated: no memory for gradients, master weights or an optimizer
};

struct ModelOptions {
  Strategy strategy = Strategy::ddp;
  /// hybrid: S, the neighbouring ranks among which one copy of the model states is sharded. A
  /// divisor of the number of ranks; 0: the ranks of a machine, which must be as many on each (a
  /// rank that only counts stands for a job on one machine).
  int shard_group = 0;
  Purpose purpose = Purpose::training;
  /// Of parameters, and of what is computed with them; a ParameterSpec may say otherwise. Where it
  /// is bf16 or fp16 the optimizer updates fp32 master weights, cut as its own state, and the
  /// parameters are rounded copies: to nearest, bf16 with ties away from zero.
  DType compute = DType::fp32;
  /// How those masters are kept. `remainder`: parameters that are trained are bf16, and fp32 ones
  /// may lie beside them. ConfigError where one is fp16, none is bf16, or the optimizer is
  /// offloaded; from optimize_with for stochastic rounding and a CustomOptimizer.
  MasterWeights master_weights = MasterWeights::fp32;
  /// What backward adds into.
  DType gradient = DType::fp32;
  /// What travels when gradients are reduced, if narrower than `gradient`: fp32 or bf16. Sums are
  /// made in fp32 or wider, in rank order, and rounded once (hybrid: within a shard group, and once
  /// more across groups).
  DType reduce = DType::fp32;
  /// Parameters start on multiples of this many elements, and every shard is one: 64, or a multiple
  /// of it. Moments of 8 bits need a multiple of 256 (kMomentBlock), so that no block of theirs
  /// belongs to two parameters or two ranks.
  std::int64_t align_elems = kAlignElems;
  /// Blocks gathered ahead of the one in use, in forward passes and in backward ones (zero3,
  /// hybrid; if not given, both as forward). The ring has one slot more than the larger of the two.
  int prefetch = 1;
  std::optional<int> prefetch_backward = {};
  /// Of every block that does not say otherwise (zero3, hybrid).
  Reshard reshard = Reshard::after_forward;
  /// Units of at most so many elements, root units too, stay gathered from their first use after an
  /// update until the next (zero3, hybrid): each has a slot of its own. 0: none.
  std::int64_t persist_elems = 0;
  /// Micro-batches (forward and backward of the whole model) in a step.
  int accumulate = 1;
  AccumulateMode accumulate_mode = AccumulateMode::automatic;
  /// `ddp` all-reduces finished units together, once this many bytes have come up.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  /// What the trainer multiplies the gradient of its loss with: see ShardedModel::loss_scale.
  LossScaling loss_scaling = {};
  /// A step whose gradient is not finite is skipped; after so many in a row `step` throws
  /// NumericError that names the origin. 0: never.
  std::int64_t max_skips = 25;
  /// optimizer: the fp32 weights that the optimizer updates, its state and the update itself are
  /// the host's; the device keeps what computation needs. Gradients leave for the host when they
  /// have been reduced, beside backward; `step` enqueues the update, which runs unit by unit beside
  /// the next forward pass, and a unit's first use waits for its own. No bit of any result changes
  /// (docs/offload.md).
  Offload offload = Offload::none;
  /// With `offload`: the fraction of the elements that the optimizer updates, from 0 to below 1,
  /// whose state stays on the device all the same. Whole units, the last declared first.
  float offload_keep = 0.0F;
  Checks checks = Checks::off;
};

/// *Collective.* By rank, what tells its machine from others (or TESSERA_MACHINE): of as many ranks
/// as each has, side by side, hybrid makes a group where `shard_group` is 0.
[[nodiscard]] std::vector<std::string> machines_of_ranks(World& world);

enum class UnitKind : std::uint8_t {
  block,  ///< gathered into a ring slot around each use, or as Reshard says
  root,   ///< used outside the blocks: a slot of its own, kept from its first use to its last
};

enum class GradientInit : std::uint8_t {
  zeroed,    ///< views start at zero or hold earlier micro-batches: kernels add
  unzeroed,  ///< views hold anything: the trainer overwrites every element, in the only backward
             ///< scope of the unit; refused where micro-batches accumulate in the view, or a
             ///< second scope is opened
};

struct UnitOptions {
  UnitKind kind = UnitKind::block;
  GradientInit gradients = GradientInit::zeroed;
  /// If not given, ModelOptions::reshard. For blocks under zero3 and hybrid.
  std::optional<Reshard> reshard = {};
};

/// A registered unit: what add_unit returns, for the model that made it alone. Value type; one made
/// by itself is no unit.
class Unit {
 public:
  Unit() = default;
  /// In the order of declaration, from 0.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  friend bool operator==(const Unit&, const Unit&) = default;

 private:
  friend class ShardedModel;
  Unit(std::size_t index, std::uint32_t model) noexcept
      : index_{static_cast<std::uint32_t>(index)}, model_{model} {}

  std::uint32_t index_ = 0;
  std::uint32_t model_ = 0;  // the model's number in its process, from 1
};

/// How long a tensor may be looked at: until the scope that it was taken from ends.
class Lifetime {
 public:
  /// `*scopes` counts the scopes of the unit that have ended. `category`: whose memory it is.
  /// `life` keeps both references.
  Lifetime(std::shared_ptr<const void> life, const std::uint64_t& scopes, Category category,
           const std::string& unit) noexcept
      : life_{std::move(life)},
        scopes_{&scopes},
        taken_{scopes},
        category_{category},
        unit_{&unit} {}
  /// ContractError that names category and unit if the scope has ended.
  void require_open() const {
    if (*scopes_ != taken_) [[unlikely]] { refuse(); }
  }

 private:
  [[noreturn]] void refuse() const;

  std::shared_ptr<const void> life_;
  const std::uint64_t* scopes_;
  std::uint64_t taken_;
  Category category_;
  const std::string* unit_;
};

/// A parameter or gradient, readable from the opening of its scope to the end. Not owned. Converts
/// to the pointer a kernel takes; ContractError if the element type is another, or if the scope or
/// the model has ended: another unit may live there by then.
class ConstTensor {
 public:
  ConstTensor(ConstView view, const Shape& shape, const Lifetime& lifetime) noexcept
      : view_{view}, shape_{&shape}, lifetime_{lifetime} {}
  [[nodiscard]] const void* data() const {
    lifetime_.require_open();
    return view_.data;
  }
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype; }
  [[nodiscard]] const Shape& shape() const noexcept { return *shape_; }
  operator const float*() const;
  /// Whatever the element type.
  operator ConstValues() const { return {data(), view_.dtype}; }

 private:
  ConstView view_;
  const Shape* shape_;
  Lifetime lifetime_;
};

/// As ConstTensor, for writing.
class Tensor {
 public:
  Tensor(View view, const Shape& shape, const Lifetime& lifetime) noexcept
      : view_{view}, shape_{&shape}, lifetime_{lifetime} {}
  [[nodiscard]] void* data() const {
    lifetime_.require_open();
    return view_.data;
  }
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype; }
  [[nodiscard]] const Shape& shape() const noexcept { return *shape_; }
  operator float*() const;
  operator Values() const { return {data(), view_.dtype}; }
  operator ConstValues() const { return {data(), view_.dtype}; }

 private:
  View view_;
  const Shape* shape_;
  Lifetime lifetime_;
};

class ForwardScope;
class BackwardScope;
class Evaluation;

/// What one step did: the same bits on every rank and, with the same explicit options, strategy.
struct StepReport {
  std::int64_t step = 0;   ///< from 1
  double loss = 0.0;       ///< mean over ranks of the losses given to `step`
  double grad_norm = 0.0;  ///< L2 norm of the averaged gradient, before clipping
  float clip_coefficient = 1.0F;
  float lr = 0.0F;
  float loss_scale = 1.0F;            ///< that the gradients of this step were scaled by
  float next_loss_scale = 1.0F;       ///< of the step that comes
  bool skipped = false;               ///< the gradient was not finite: nothing was updated
  std::int64_t skipped_in_a_row = 0;  ///< steps, this one included
};

/// Persistent bytes of this rank: what the strategy table counts, slots not included.
struct ModelStateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t host = 0;  ///< in the host pool instead (ModelOptions::offload): no part of the above
  friend bool operator==(const ModelStateBytes&, const ModelStateBytes&) = default;
};

enum class StateTensor : std::uint8_t {
  parameters,
  gradients,  ///< averaged over ranks and micro-batches, not clipped; complete before `step`
};

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
  explicit ShardedModel(World& world, ModelOptions options = {});
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
  /// that keep copies (ddp; hybrid, one a shard group) are all handed the same.
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

#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/torch/random.hpp"
#include "tessera/world/world.hpp"

namespace tessera::torch {

class DrawsFrom;

/// A function that returns whether a module is a unit: its parameters, without those of units
/// within it, are gathered and released together. `name` is the module's path in the whole module,
/// such as "blocks.3".
using UnitPredicate =
    std::function<bool(const std::string& name, const ::torch::nn::Module& module)>;

/// Returns a predicate for modules by name. `*` matches any characters of one part of a name, and
/// `?` one character: "blocks.*" matches "blocks.3" and not "blocks.3.mlp", "conv?" matches
/// "conv1".
[[nodiscard]] UnitPredicate units_named(std::vector<std::string> patterns);

/// How ranks keep a module's buffers, such as the running statistics of a BatchNorm.
enum class Buffers : std::uint8_t {
  broadcast,  ///< Before each forward pass of training, rank 0's values are copied to all ranks.
  local,      ///< Each rank keeps its own values. Checkpoints have those of rank 0.
};

/// What a rank's loss is, from which follows how ranks' gradients and losses are put together.
enum class LossReduction : std::uint8_t {
  mean,  ///< A mean over the rank's samples: gradients and reported losses are averaged over ranks,
         ///< as DistributedDataParallel does.
  sum,   ///< A sum over the rank's samples: gradients and reported losses are added over ranks.
};

/// A function that sets the initial values of the parameters of `module` itself, without those of
/// its children. They are whole and on the CPU during the call, without gradients; libtorch's own
/// layers already have their usual values. `name` is the module's path, "" for the whole module.
/// Operators that it calls draw from a generator that is seeded for each module.
using ModuleInitializer = std::function<void(const std::string& name, ::torch::nn::Module& module)>;

/// Returns an initializer that sets parameters to 0, for a module whose weights are loaded later.
[[nodiscard]] ModuleInitializer loaded_later();

/// How a module is sharded.
struct ShardOptions {
  /// The strategy and all other options of the ShardedModel. Parameters that are fp32 in the module
  /// get the dtype `compute`; bf16 and fp16 parameters keep theirs. AccumulateMode::automatic
  /// reduces every micro-batch under every strategy, so that losses have the same bits.
  /// KeepWhole::automatic is `where_smaller`.
  ModelOptions model = {};
  /// The modules that are units. Parameters of no unit, and tensors that several units share, are
  /// in a root unit called "(root)". A module that is registered twice is in the unit where it was
  /// found first. Empty: each child with parameters. A child is opened, so that its children are
  /// units in its place, if it is or contains a ModuleList, ModuleDict or Sequential (except within
  /// another one) or has more than half of the elements. Children of at most 8,192 elements are
  /// joined to a neighbour 16 times as large, in a unit such as "conv1..bn1". Names in files do not
  /// depend on units. ShardedModel::whole_units says which units are kept whole.
  UnitPredicate units = {};
  /// What each rank's loss is.
  LossReduction loss_reduction = LossReduction::mean;
  /// How ranks keep the module's buffers.
  Buffers buffers = Buffers::broadcast;
  /// The initial values of a module built by `on_meta`, beside those of libtorch's own layers. They
  /// are made one unit at a time on each rank, and depend on `seed` and the module only, not on
  /// ranks, strategy or units. Parameters that already have values take those of rank 0.
  ModuleInitializer initial = {};
  /// The seed of initial values, and of the numbers that are drawn in passes (RandomNumbers). In a
  /// program of `tessera::torch::run` these come from RunOptions::seed.
  std::uint64_t seed = 0;
  /// Whether ranks draw different numbers in passes: dropout, noise. In a program of
  /// `tessera::torch::run` RunOptions::random decides instead.
  RandomNumbers random = RandomNumbers::per_rank;
};

/// A libtorch module whose parameters, gradients and optimizer state are distributed over the ranks
/// by a strategy (ShardedModel). The module's classes and operators do not change: when an operator
/// reads a parameter, in a forward or a backward pass, the parameter's unit is gathered.
///
///     auto net = std::make_shared<Net>();
///     auto model = tessera::torch::shard(net, world, {.model = {.strategy = Strategy::zero3}});
///     model.optimize_with(tessera::AdamW{});
///     for (...) {
///       model.backward(cross_entropy(model(x), y));  // accumulate times
///       model.step();
///     }
///
/// A step may have any passes, as with PyTorch: several forward passes and then several backward
/// passes, which add their gradients, passes without gradients (NoGradGuard), and passes whose loss
/// is dropped:
///
///     model.backward(d_loss(model(real)));
///     model.backward(d_loss(model(fake)));
///     model.step();
///
/// How it works: the rank's thread intercepts each of libtorch's operators before it runs. An
///          operator that reads a parameter opens the parameter's unit and closes all other open
///          units, except those that contain it. Parameters and views that autograd has saved share
///          the parameter's storage, which always points to the unit's current memory: they never
///          read another unit's memory. A unit's gradients are reduced once the last gradient that
///          the loss reaches is computed.
/// Order:   every rank makes the same calls and runs the same operators on parameters, in the same
///          order. Parameters can be read in `evaluate`, from the first forward pass with gradients
///          of a step until `step` or `discard`, and anywhere without gradients (NoGradGuard, or a
///          detached tensor), as target networks and clones do. An operator that reads them
///          elsewhere, or writes them anywhere, throws ContractError that names the parameter.
/// Memory:  while this object lives, memory that libtorch allocates on the rank's thread counts as
///          activations in World::memory and against the budget, data included: load datasets
///          before. It borrows the World.
/// Gradients: `grad()` of a parameter has elements only while its unit's backward is open; the
///          user's hooks may read it there. Afterwards the gradient is sharded, and `grad()` stands
///          for it: between `backward` and `step` it has the norms 2 and infinity of the whole
///          gradient, averaged over ranks, and can be multiplied by a number, so that
///          `clip_grad_norm_` works, for one all-reduce; `zero_grad` drops it. Any other operator
///          on it throws ContractError that says what to call. export_gradients returns it.
/// Numbers: a rank's loss is the mean over its micro-batch (ShardOptions::loss_reduction).
///          Gradients are averaged over ranks, and added over the backward passes of a step; with
///          `accumulate` K the sum is divided by K. A step's reported loss is put together alike.
/// Errors:  the operator that needs a unit throws what ShardedModel throws. An exception in a
///          forward pass closes its units, and the pass counts for nothing: all ranks may make it
///          again. After an exception in a backward pass the model cannot go on. Ranks of which
///          some drop gradients and others do not get CommError from the next collective call.
/// Threads: the rank's own, and those that autograd starts. An operator of another thread that uses
///          parameters throws ContractError; give such a thread what `state_dict` returns.
class ShardedModule {
 public:
  /// Gives up the module's parameters: they are on the meta device afterwards, without values, and
  /// autograd refuses graphs that need them. It never throws. All scopes and passes must have
  /// ended.
  ~ShardedModule();
  /// Takes over the model of the other object, which can then only be destroyed.
  ShardedModule(ShardedModule&&) noexcept;
  ShardedModule& operator=(ShardedModule&&) = delete;

  /// *Collective.* Allocates and zeroes the optimizer's state: see ShardedModel::optimize_with.
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options = {});
  /// Sets the learning rate of the next and later steps: see ShardedModel::set_learning_rate.
  void set_learning_rate(float lr);

  /// *Collective.* Runs `pass`, which may read parameters, as a forward pass, and returns its
  /// result. There may be any number of forward passes, before and after each `backward`. One whose
  /// graph is dropped changes nothing. Without gradients (NoGradGuard, InferenceMode) the pass
  /// gathers units as an evaluation does, in the module's current mode, and does not copy buffers.
  template <class Pass>
  decltype(auto) forward(Pass&& pass) {
    InForward open{*this};
    try {
      return std::forward<Pass>(pass)();
    } catch (...) {
      open.end();  // not while the exception unwinds: the model can go on
      throw;
    }
  }

  /// *Collective.* Runs autograd from `loss` and adds the gradients to those of the step. `loss`
  /// has one element: this rank's mean (or sum) over its micro-batch. Its gradient is multiplied by
  /// the loss scale. With `retain_graph` there may be another backward pass through the same graph.
  /// Throws ContractError if no forward pass was made or `loss` needs no gradient.
  void backward(const at::Tensor& loss, bool retain_graph = false);
  /// *Collective.* Drops the gradients of the backward passes since the last step, and their
  /// losses: the step begins anew. It does nothing if there are none. Throws ContractError within a
  /// pass.
  void discard();
  /// *Collective.* Averages and clips the gradients and updates the parameters: see
  /// ShardedModel::step. Throws ContractError unless `backward` was called `accumulate` times, or a
  /// multiple of it. Afterwards autograd refuses graphs that were made before. Where losses do not
  /// count every token, each is the sum over those that count, divided by one number D for all
  /// micro-batches and ranks, such as the number of all tokens of a micro-batch. `count` then has
  /// the number that counted, in a tensor of one double on the module's device that lives until
  /// `report` returns, and D * `accumulate`. Throws ContractError for a count with
  /// LossReduction::sum, and after more than `accumulate` backward passes.
  void step(const LossCount& count = {});

  /// *Collective.* Runs `passes` in evaluation mode and without gradients, and returns its result.
  /// It may be called between the passes of a step. Each forward pass in it is a pass of an
  /// Evaluation. The modes are restored afterwards.
  template <class Passes>
  decltype(auto) evaluate(Passes&& passes) {
    const InEvaluation open{*this};
    return std::forward<Passes>(passes)();
  }

  /// Waits for the last step and returns its report.
  [[nodiscard]] StepReport report() const;

  /// *Collective.* Returns the values of parameters and buffers by the module's own names, on the
  /// CPU: parameters in fp32 (Float), buffers in their own types. Units are gathered one at a time.
  /// A shared tensor appears under all of its names. Only rank 0's map is filled, unless
  /// `on_all_ranks`. It may be called at any time but in a backward pass.
  [[nodiscard]] std::map<std::string, at::Tensor> state_dict(bool on_all_ranks = false);
  /// *Collective.* Returns the gradients of trained parameters by the module's own names, on the
  /// CPU in fp32: averaged over ranks and micro-batches, not clipped. Only rank 0's map is filled,
  /// unless `on_all_ranks`. It is called between the last `backward` of a step and `step`.
  [[nodiscard]] std::map<std::string, at::Tensor> export_gradients(bool on_all_ranks = false);

  /// *Collective.* Writes a checkpoint of the whole training state and the module's buffers, under
  /// the module's own names: see tessera::save. Gradients of a step under way are not in it. A
  /// shared tensor is written once, under its first name. Buffers are those of rank 0, in their own
  /// types, including integers.
  std::filesystem::path save(const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& values = {},
                             const SaveOptions& options = {});
  /// *Collective.* Loads a checkpoint of `save` on any number of ranks and under any strategy: see
  /// tessera::load. `path` is the folder of a step. All ranks get its buffers.
  ///
  /// LoadOptions::What::weights also loads weights and buffers from safetensors files of other
  /// programs, converted to the module's dtypes. A shared tensor may have any of its names there.
  /// `missing` and `unexpected` of the report include buffers, whose checksums are not compared.
  /// ConfigError names a tensor with values that its dtype in the module cannot hold, even rounded:
  /// beyond its range, or fractions in an integer.
  /// ContractError for `allow_partial` false, which does not know buffers: look at the report.
  /// LoadOptions::name and `only` apply to buffers too; `name` is given a ParameterInfo from which
  /// `name_of` returns the name in the module.
  ///
  ///     model.load("bert", {.what = LoadOptions::What::weights,
  ///                         .name = [](auto& p) { return "bert." + ShardedModule::name_of(p); }});
  LoadReport load(const std::filesystem::path& path, const LoadOptions& options = {});
  /// Returns the values and the current buffers for a Checkpointer of `model()` to save. They are
  /// valid until the next call on this object. `name_of` gives tensors in the files the module's
  /// names:
  ///
  ///     Checkpointer saves{model.model(),
  ///                        {.folder = "run", .every = 100, .save = {.name =
  ///                        ShardedModule::name_of}}};
  ///     saves.after_step([&] { return model.checkpoint_extras(); });
  [[nodiscard]] CheckpointExtras checkpoint_extras(
      const std::map<std::string, std::string>& values = {}) const;

  /// Returns the underlying model, for calls that this class does not repeat: memory reports,
  /// layouts, a Checkpointer. Only this object opens its scopes and makes its steps. The call ends
  /// what operators outside passes have opened, so call it rather than keep the reference.
  [[nodiscard]] ShardedModel& model();
  /// Returns the name in the module of a parameter of `model()`: the name of its tensor in
  /// checkpoints and exports.
  [[nodiscard]] static std::string name_of(const ParameterInfo& parameter);

  /// The implementation behind the public calls.
  class Work;
  /// Returns the implementation.
  [[nodiscard]] Work& work() noexcept { return *work_; }

 protected:
  /// Shards `module`, as `shard` does.
  ShardedModule(std::shared_ptr<::torch::nn::Module> module, World& world, ShardOptions options);

 private:
  /// A forward pass: between construction and destruction parameters can be read.
  class InForward {
   public:
    explicit InForward(ShardedModule& module);
    ~InForward() noexcept(false);
    InForward(const InForward&) = delete;
    InForward& operator=(const InForward&) = delete;
    void end();

   private:
    ShardedModule& module_;
    std::unique_ptr<DrawsFrom> draws_;
    bool ended_ = false;
  };
  /// An evaluation.
  class InEvaluation {
   public:
    explicit InEvaluation(ShardedModule& module);
    ~InEvaluation();
    InEvaluation(const InEvaluation&) = delete;
    InEvaluation& operator=(const InEvaluation&) = delete;

   private:
    ShardedModule& module_;
    bool grad_mode_;  // before
  };

  std::unique_ptr<Work> work_;
};

/// A ShardedModule that can be called like its module.
template <class Module>
class Sharded : public ShardedModule {
 public:
  /// Shards `module`; user code calls `shard` instead.
  Sharded(std::shared_ptr<Module> module, World& world, ShardOptions options)
      : ShardedModule{module, world, std::move(options)}, module_{std::move(module)} {}

  /// Runs the module's `forward` as a forward pass.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward([&] { return module_->forward(std::forward<Inputs>(inputs)...); });
  }
  using ShardedModule::forward;

  /// Returns the module.
  [[nodiscard]] Module& module() noexcept { return *module_; }

 private:
  std::shared_ptr<Module> module_;
};

/// *Collective.* Runs autograd from one loss through several sharded modules, each with an
/// optimizer and steps of its own, as ShardedModule::backward does for one:
///
///     tessera::torch::backward(loss(decoder(encoder(x))), {encoder, decoder});
///     encoder.step();
///     decoder.step();
///
/// Each has made a forward pass, and reports this loss. Throws ConfigError if their
/// `loss_reduction` differs, or if there are several and the loss of one is scaled.
void backward(const at::Tensor& loss,
              const std::vector<std::reference_wrapper<ShardedModule>>& models,
              bool retain_graph = false);

/// *Collective.* Distributes the parameters of `module`, which must be on the World's device or on
/// meta (`on_meta`), and returns the sharded module to train. The module's own memory for
/// parameters is freed.
///
/// Errors: ContractError for a parameter that is not fp32, bf16 or fp16, that is a view, or that
///         shares its memory with another tensor, since that would keep the old values; for a unit
///         without parameters, for a module that is sharded already, and if the ranks' modules
///         differ. ConfigError for options that exclude each other, for
///         ModelOptions::checks and for TestingOptions::compute_stream worker. Otherwise as
///         ShardedModel. A module that is refused keeps its parameters, but they may already have
///         rank 0's values.
template <class Module>
[[nodiscard]] Sharded<Module> shard(std::shared_ptr<Module> module, World& world,
                                    ShardOptions options = {}) {
  return Sharded<Module>{std::move(module), world, std::move(options)};
}
/// *Collective.* Distributes the parameters of the module in a module holder (TORCH_MODULE), as the
/// function above.
template <class Module>
[[nodiscard]] Sharded<Module> shard(const ::torch::nn::ModuleHolder<Module>& module, World& world,
                                    ShardOptions options = {}) {
  return Sharded<Module>{module.ptr(), world, std::move(options)};
}

}  // namespace tessera::torch

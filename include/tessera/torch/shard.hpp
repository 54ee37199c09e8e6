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
#include "tessera/world/world.hpp"

namespace tessera::torch {

/// Returns whether a module is a unit: its parameters, without those of units within it, are
/// gathered and released together. `name` is its place in the whole module, such as "blocks.3".
using UnitPredicate =
    std::function<bool(const std::string& name, const ::torch::nn::Module& module)>;

/// Returns a predicate for modules by name. `*` stands for one part of a name: "blocks.*" matches
/// "blocks.3", and not "blocks.3.mlp".
[[nodiscard]] UnitPredicate units_named(std::vector<std::string> patterns);

/// Which values a module's buffers, such as the running statistics of a BatchNorm, have.
enum class Buffers : std::uint8_t {
  broadcast,  ///< Before each forward pass of training, each rank takes rank 0's.
  local,      ///< Each rank keeps its own. Checkpoints hold rank 0's.
};

/// Sets the parameters that `module` itself has, without those of its children, to their initial
/// values. They are whole and on the CPU during the call, without gradients; libtorch's own layers
/// have the values that they are built with. `name` is the module's place, "" for the whole. Random
/// numbers come from libtorch's default generator, which is seeded for each module.
using ModuleInitializer = std::function<void(const std::string& name, ::torch::nn::Module& module)>;

/// Returns an initializer that sets parameters to 0, for a module whose weights a load brings.
[[nodiscard]] ModuleInitializer loaded_later();

/// How a module is sharded.
struct ShardOptions {
  /// The strategy and all else that a ShardedModel is told. `compute` is the dtype of parameters
  /// that are fp32 in the module; those that are bf16 or fp16 there stay so.
  ModelOptions model = {};
  /// Which modules are units. Parameters of no unit, and tensors that several units share, make a
  /// root unit called "(root)". A module that is registered twice stays in the unit where it was
  /// found first. Empty: each child of a ModuleList, a ModuleDict or a Sequential that has
  /// parameters, the outermost of them.
  UnitPredicate units = {};
  /// How buffers are kept alike.
  Buffers buffers = Buffers::broadcast;
  /// The initial values of a module built by `on_meta`, beside those that libtorch's own layers are
  /// built with. They are made a unit at a time on each rank, and depend on `seed` and the module
  /// alone: not on ranks, strategy or units. Parameters that have values are rank 0's.
  ModuleInitializer initial = {};
  /// What the random numbers of initial values begin with.
  std::uint64_t seed = 0;
};

/// A libtorch module whose parameters, gradients and optimizer state are distributed over ranks as
/// a strategy says (ShardedModel). Neither the module's classes nor its operators change: an
/// operator that reads a parameter, in a forward or a backward pass, finds its unit gathered.
///
///   auto net = std::make_shared<Net>();
///   auto model = tessera::torch::shard(net, world, {.model = {.strategy = Strategy::zero3}});
///   model.optimize_with(tessera::AdamW{});
///   for (...) {
///     model.backward(cross_entropy(model(x), y));  // accumulate times
///     model.step();
///   }
///
/// How it works: the rank's thread sees each of libtorch's operators before it runs. One that reads
///          a parameter opens the parameter's unit and closes those that are open, except for units
///          that contain it. What autograd has saved of a parameter, views too, is the parameter's
///          storage, which is pointed to where the unit lies now: it can never read another unit's
///          memory. A unit's gradients are reduced once the last that the loss reaches has come.
/// Order:   every rank makes the same calls and runs the same operators on parameters, in the same
///          order. Parameters can be read in `forward`, `operator()`, `evaluate` and, in the same
///          micro-batch, until `backward`. An operator that reads them elsewhere, or writes them
///          anywhere, throws ContractError that names the parameter.
/// Memory:  while this object lives, what libtorch allocates on the rank's thread counts as
///          activations in World::memory and against the budget. It borrows the World.
/// Gradients: `grad()` of a parameter is defined only while its unit's backward is open: hooks of
///          the user's own may read it there. Afterwards it is sharded: `clip_norm` and reports
///          know it, and export_gradients hands it out.
/// Numbers: a rank's loss is the mean over its micro-batch. Gradients are averaged over ranks and
///          micro-batches.
/// Errors:  what ShardedModel throws, out of the operator that needed the unit. An exception in a
///          forward pass closes its units; the pass may be made again, on all ranks. After one in a
///          backward pass the model cannot go on.
/// Threads: the rank's own. Autograd's threads are known; other threads must not use parameters,
///          which have no address for them.
class ShardedModule {
 public:
  /// Gives the module's parameters up: they are on the meta device then, without values, and
  /// autograd refuses graphs that need them. It never throws. All scopes and passes have ended.
  ~ShardedModule();
  ShardedModule(ShardedModule&&) noexcept;
  ShardedModule& operator=(ShardedModule&&) = delete;

  /// *Collective.* Allocates and zeroes the optimizer's state: ShardedModel::optimize_with.
  void optimize_with(const Optimizer& optimizer, const OptimizerOptions& options = {});
  /// Sets the learning rate of the steps from the next on: ShardedModel::set_learning_rate.
  void set_learning_rate(float lr);

  /// *Collective.* Runs `pass`, which may read parameters, as a forward pass, and returns what it
  /// returns. Several may come before a `backward`.
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

  /// *Collective.* Runs autograd from `loss`, one element, this rank's mean over its micro-batch,
  /// and ends the micro-batch. The gradient of the loss is multiplied by the loss scale. Throws
  /// ContractError if no forward pass was made or `loss` needs no gradient.
  void backward(const at::Tensor& loss);
  /// *Collective.* Averages, clips and updates: ShardedModel::step. Throws ContractError unless
  /// `backward` was called `accumulate` times. Autograd then refuses graphs from before it.
  void step();

  /// *Collective.* Runs `passes` in evaluation mode and without gradients; each forward pass in it
  /// is one of an Evaluation. Modes are as before afterwards. Returns what `passes` returns.
  template <class Passes>
  decltype(auto) evaluate(Passes&& passes) {
    const InEvaluation open{*this};
    return std::forward<Passes>(passes)();
  }

  /// Waits for the last step and returns its report.
  [[nodiscard]] StepReport report() const;

  /// *Collective.* Returns the values of parameters and buffers by the module's own names, on the
  /// CPU: parameters in fp32 (Float), buffers as they are. Units are gathered one at a time. What
  /// is shared has all of its names. Only rank 0's map is filled, unless `on_all_ranks`. Between
  /// steps.
  [[nodiscard]] std::map<std::string, at::Tensor> state_dict(bool on_all_ranks = false);
  /// *Collective.* Returns the gradients of parameters that are trained in the same way: averaged
  /// over ranks and micro-batches, not clipped, between the last `backward` of a step and `step`.
  [[nodiscard]] std::map<std::string, at::Tensor> export_gradients(bool on_all_ranks = false);

  /// *Collective.* Writes a checkpoint of the whole training state and the module's buffers, under
  /// the module's own names: tessera::save. What is shared is written once, under its first name.
  /// Buffers are rank 0's, as they are: integers too.
  std::filesystem::path save(const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& values = {},
                             const SaveOptions& options = {});
  /// *Collective.* Loads what `save` wrote, on any number of ranks and under any strategy:
  /// tessera::load. `path` is the folder of a step. All ranks then have its buffers.
  ///
  /// Weights alone (LoadOptions::What::weights) also come from safetensors files of other programs,
  /// and buffers with them, converted to the module's dtypes. What is shared may have any of its
  /// names there. `missing` and `unexpected` of the report count buffers too; the checksums of
  /// theirs are not compared. LoadOptions::name and `only` tell the names in the files, of buffers
  /// too: `name` is given the name in the module as `name_of` finds it.
  ///
  ///   model.load("bert", {.what = LoadOptions::What::weights,
  ///                       .name = [](auto& p) { return "bert." + ShardedModule::name_of(p); }});
  LoadReport load(const std::filesystem::path& path, const LoadOptions& options = {});
  /// Returns what a Checkpointer of `model()` is asked to save beside the model, with the buffers
  /// as they are now. It is valid until the next call on this object. Names in the files are the
  /// module's if the Checkpointer is told:
  ///
  ///   Checkpointer saves{model.model(),
  ///                      {.folder = "run", .every = 100, .save = {.name =
  ///                      ShardedModule::name_of}}};
  ///   saves.after_step([&] { return model.checkpoint_extras(); });
  [[nodiscard]] CheckpointExtras checkpoint_extras(
      const std::map<std::string, std::string>& values = {}) const;

  /// Returns the model beneath, for what is not repeated here: reports of memory, layouts, a
  /// Checkpointer. Its scopes and steps are this object's.
  [[nodiscard]] ShardedModel& model() noexcept;
  /// Returns the name in the module of a parameter of `model()`: the name of its tensor in
  /// checkpoints and exports.
  [[nodiscard]] static std::string name_of(const ParameterInfo& parameter);

  /// The module's parts behind the public calls.
  class Work;

 protected:
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

/// A ShardedModule that knows the class of its module, so that it can be called like it.
template <class Module>
class Sharded : public ShardedModule {
 public:
  /// `shard` makes it.
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

/// *Collective.* Distributes the parameters of `module`, which must be on the World's device or on
/// meta (`on_meta`), and returns the module to train with. The module's own memory for parameters
/// is then given back.
///
/// Errors: ContractError for a parameter that is neither fp32, bf16 nor fp16, is a view of another
///         or shares its memory with any tensor, which would keep the values of today, for a unit
///         without parameters, for a module that is sharded already and for ranks whose modules
///         differ. ConfigError for options that exclude each other and for
///         WorldOptions::compute_stream worker. Otherwise as ShardedModel. A module that is
///         refused keeps its parameters; their values may be rank 0's by then.
template <class Module>
[[nodiscard]] Sharded<Module> shard(std::shared_ptr<Module> module, World& world,
                                    ShardOptions options = {}) {
  return Sharded<Module>{std::move(module), world, std::move(options)};
}
/// The same for a module holder (TORCH_MODULE).
template <class Module>
[[nodiscard]] Sharded<Module> shard(const ::torch::nn::ModuleHolder<Module>& module, World& world,
                                    ShardOptions options = {}) {
  return Sharded<Module>{module.ptr(), world, std::move(options)};
}

}  // namespace tessera::torch

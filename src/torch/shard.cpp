#include "tessera/torch/shard.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/engine/init.hpp"
#include "torch/cuda_stream.hpp"
#include "torch/initial_values.hpp"
#include "torch/meta_tensors.hpp"
#include "torch/work.hpp"

namespace tessera::torch {

namespace {

std::shared_ptr<::torch::nn::Module> checked(std::shared_ptr<::torch::nn::Module> module,
                                             World& world, const ModelOptions& options) {
  if (!module) {
    throw ContractError{"shard needs a module, but the pointer is null; pass a module"};
  }
  if (makes_meta_tensors()) {
    throw ContractError{
        "shard is called within on_meta, where tensors have no memory; build the module there, and "
        "shard it afterwards"};
  }
  if (world.options().testing.compute_stream != ComputeStream::caller) {
    throw ConfigError{
        "`testing.compute_stream` must be caller: libtorch computes on the calling thread"};
  }
  if (options.checks != Checks::off) {
    throw ConfigError{
        "`checks` compare forward with backward scopes of a trainer, which a libtorch module does "
        "not count; leave ModelOptions::checks at off"};
  }
  if (world.simulated()) { return module; }  // its values are not read
  if (world.options().device == DeviceKind::cuda) { CudaStream::require(); }
  const at::Device device{world.device().name()};
  for (const auto& parameter : module->named_parameters()) {
    if (Place::of(parameter.value()) != nullptr) {
      throw ContractError{"parameter \"" + parameter.key() +
                          "\" already belongs to a sharded module; shard a module once"};
    }
    const at::Tensor& tensor = parameter.value();
    if (has_been_given_up(tensor)) {
      throw ContractError{"parameter \"" + parameter.key() +
                          "\" has no values: the sharded module that it belonged to has ended; "
                          "build a new module, and load what was saved"};
    }
    if (!tensor.is_meta() && tensor.device() != device) {
      throw ContractError{"parameter \"" + parameter.key() + "\" is on " + tensor.device().str() +
                          ", but the rank's device is " + device.str() +
                          "; move the module first (module->to(...))"};
    }
  }
  return module;
}

ShardOptions with_defaults(ShardOptions options) {
  ModelOptions& model = options.model;
  if (model.keep_whole == KeepWhole::automatic) { model.keep_whole = KeepWhole::where_smaller; }
  // Every strategy reduces each micro-batch, so that losses have the same bits under all of them.
  if (model.accumulate > 1 && model.accumulate_mode == AccumulateMode::automatic) {
    model.accumulate_mode = AccumulateMode::every;
  }
  return options;
}

// A tensor that shares a parameter's memory would keep it, with its current values.
void require_own_memory(const std::vector<ModuleUnit>& units) {
  for (const ModuleUnit& unit : units) {
    for (const ModuleParameter& parameter : unit.parameters) {
      if (parameter.tensor.is_meta() || parameter.tensor.storage().use_count() == 1) { continue; }
      throw ContractError{
          "parameter \"" + parameter.names.front() +
          "\" shares its memory with another tensor (detach, view, a member that was computed from "
          "it, the graph of a result that lives), which would keep the current values; clone it, "
          "compute it in the forward pass, or make the pass under NoGradGuard"};
    }
  }
}

}  // namespace

ShardedModule::Work::Work(std::shared_ptr<::torch::nn::Module> module_, World& world_,
                          ShardOptions options_)
    : module{checked(std::move(module_), world_, options_.model)},
      world{world_},
      options{with_defaults(std::move(options_))},
      units{units_of(*module, options.units)},
      allocations{world},
      model{world, options.model},
      passes{model, units},
      buffers{*module, world, options.buffers},
      random{RankRandom::for_passes(world, options.seed, options.random)} {
  if (world.simulated()) {
    model.materialize(init::constant(0.0F));
    return;
  }
  if (world.options().device == DeviceKind::cpu) { at::set_num_threads(world.options().threads); }
  require_same_units(world, units);
  require_own_memory(units);
  for (const ModuleUnit& unit : units) {
    std::vector<at::Tensor> tensors;
    for (const ModuleParameter& parameter : unit.parameters) {
      if (!parameter.tensor.is_meta()) { tensors.push_back(parameter.tensor); }
    }
    broadcast_from_rank0(world, tensors);
  }
  model.materialize(initial_values(*module, units, options));
  passes.adopt();
  interception.emplace();
  loss_sum = at::zeros(
      {}, at::TensorOptions{}.dtype(at::kDouble).device(passes.homes().front().tensor().device()));
}

double ShardedModule::Work::summed_ranks() const {
  if (options.loss_reduction == LossReduction::mean) { return 1.0; }
  double ranks = world.size();
  for (const MeshDim& dim : options.model.mesh) {
    if (dim.name == "tensor" || dim.name == "pipe") { ranks /= dim.size; }
  }
  return ranks;
}

at::Tensor ShardedModule::Work::loss_scale() const {
  const at::TensorOptions options_of_scale = loss_sum.options().dtype(at::kFloat);
  const float* const scale = model.loss_scale();
  if (scale == nullptr) { return at::full({}, summed_ranks(), options_of_scale); }
  const at::Tensor found =
      at::from_blob(const_cast<float*>(scale), {}, options_of_scale);  // only read
  return options.loss_reduction == LossReduction::mean ? found : found * summed_ranks();
}

ShardedModule::ShardedModule(std::shared_ptr<::torch::nn::Module> module, World& world,
                             ShardOptions options)
    : work_{std::make_unique<Work>(std::move(module), world, std::move(options))} {}
ShardedModule::~ShardedModule() = default;
ShardedModule::ShardedModule(ShardedModule&&) noexcept = default;

void ShardedModule::optimize_with(const Optimizer& optimizer, const OptimizerOptions& options) {
  work_->passes.close_everything();
  work_->model.optimize_with(optimizer, options);
}

void ShardedModule::set_learning_rate(float lr) {
  work_->model.set_learning_rate(lr);
}

void ShardedModule::Work::backward(std::span<Work* const> all, const at::Tensor& loss,
                                   bool retain_graph) {
  std::vector<Passes*> passes;
  for (Work* const work : all) {
    work->heed_zero_grad();
    passes.push_back(&work->passes);
  }
  {
    const DrawsFrom rank{all.front()->random};
    Passes::backward(passes, loss, all.front()->loss_scale(), retain_graph);
  }
  for (Work* const work : all) {
    work->buffers_sent = false;
    ++work->backwards;
    const at::NoGradGuard no_grad;
    work->loss_sum.add_(loss.detach().reshape({}),
                        work->summed_ranks() / work->options.model.accumulate);
  }
}

void ShardedModule::backward(const at::Tensor& loss, bool retain_graph) {
  Work* const work = work_.get();
  Work::backward({&work, 1}, loss, retain_graph);
}

void backward(const at::Tensor& loss,
              const std::vector<std::reference_wrapper<ShardedModule>>& models, bool retain_graph) {
  std::vector<ShardedModule::Work*> all;
  for (ShardedModule& model : models) {
    ShardedModule::Work& work = model.work();
    if (std::ranges::find(all, &work) != all.end()) {
      throw ContractError{"backward is given a sharded module twice; name each once"};
    }
    all.push_back(&work);
    if (work.options.loss_reduction != all.front()->options.loss_reduction) {
      throw ConfigError{
          "backward through several sharded modules needs one `loss_reduction` for all of them"};
    }
    const ModelOptions& options = work.options.model;
    if (models.size() > 1 && resolve(options.loss_scaling.mode, options.compute,
                                     options.gradient) != LossScaleMode::off) {
      throw ConfigError{
          "backward through several sharded modules needs one loss scale for all of them: set "
          "`loss_scaling` to off"};
    }
  }
  if (all.empty()) { throw ContractError{"backward is given no sharded module; name one or more"}; }
  ShardedModule::Work::backward(all, loss, retain_graph);
}

void ShardedModule::Work::heed_zero_grad() {
  passes.stand_ins().require_own();
  if (!passes.stand_ins().all_are_dropped()) { return passes.stand_ins().clear_dropped(); }
  passes.drop_gradients();
  backwards = 0;
  loss_sum = at::zeros_like(loss_sum);
}

void ShardedModule::discard() {
  work_->passes.discard();
  work_->backwards = 0;
  work_->buffers_sent = false;
  work_->loss_sum = at::zeros_like(work_->loss_sum);
}

void ShardedModule::step(const LossCount& count) {
  if (count.of != 0.0 && work_->options.loss_reduction != LossReduction::mean) {
    throw ContractError{
        "step() is given what losses count, which divides means; use LossReduction::mean"};
  }
  work_->heed_zero_grad();
  const int wanted = work_->options.model.accumulate;
  if (work_->backwards == 0 || work_->backwards % wanted != 0) {
    throw ContractError{"step() is called after " + std::to_string(work_->backwards) + " of " +
                        std::to_string(wanted) +
                        " backward passes; a step needs `accumulate` of them, or a multiple "
                        "(model.backward(loss)); discard() drops those that were made"};
  }
  if (count.of != 0.0 && work_->backwards != wanted) {
    throw ContractError{"step() is given what losses count after " +
                        std::to_string(work_->backwards) + " backward passes; it needs exactly " +
                        std::to_string(wanted) + " then (`accumulate`)"};
  }
  work_->passes.end_step();
  work_->backwards = 0;
  work_->buffers_sent = false;
  work_->passes.freeze_untrained();
  work_->model.step(work_->loss_sum.data_ptr<double>(), count);
  work_->loss_sum = at::zeros_like(work_->loss_sum);
  work_->passes.parameters_changed();
}

StepReport ShardedModule::report() const {
  return work_->model.report();
}

ShardedModel& ShardedModule::model() {
  work_->passes.end_reading();
  return work_->model;
}

std::string ShardedModule::name_of(const ParameterInfo& parameter) {
  return full_name(parameter.unit, parameter.name);
}

ShardedModule::InForward::InForward(ShardedModule& module)
    : module_{module}, draws_{std::make_unique<DrawsFrom>(module.work_->random)} {
  Work& work = *module_.work_;
  if (work.world.simulated()) {
    throw ConfigError{
        "a simulated rank cannot run the operators of a libtorch module; plan its training with "
        "tessera::torch::plan, which makes the passes itself"};
  }
  if (work.passes.will_train() && !work.buffers_sent) {
    work.buffers.before_forward();
    work.buffers_sent = true;
  }
  work.passes.begin_forward();
}

void ShardedModule::InForward::end() {
  ended_ = true;
  module_.work_->passes.end_forward();
}

ShardedModule::InForward::~InForward() noexcept(false) {
  if (!ended_) { end(); }
}

ShardedModule::InEvaluation::InEvaluation(ShardedModule& module)
    : module_{module}, grad_mode_{at::GradMode::is_enabled()} {
  Work& work = *module_.work_;
  work.passes.begin_evaluation();
  work.modes.clear();
  for (const auto& module_in : work.module->modules()) {
    work.modes.emplace_back(module_in, module_in->is_training());
  }
  work.module->eval();
  at::GradMode::set_enabled(false);
}

ShardedModule::InEvaluation::~InEvaluation() {
  Work& work = *module_.work_;
  at::GradMode::set_enabled(grad_mode_);
  // A module precedes its submodules, which train() sets too.
  for (const auto& [module_in, training] : work.modes) { module_in->train(training); }
  work.passes.end_evaluation();
}

}  // namespace tessera::torch

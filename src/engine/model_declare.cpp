#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "engine/agreement.hpp"
#include "engine/model_state.hpp"
#include "engine/plan/sharding.hpp"
#include "engine/shard_group.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using engine::UnitState;

// A million times today's largest models; what is computed from sizes in bytes cannot overflow.
constexpr std::int64_t kMostElems = std::int64_t{1} << 50;

void check_dtype(DType dtype, const char* what) {
  if (dtype != DType::fp64) { return; }
  throw ConfigError{
      fmt::format("{} dtype {} is not supported: use fp32, bf16 or fp16", what, to_string(dtype))};
}

void check_reduce_dtype(DType dtype) {
  if (dtype == DType::fp32 || dtype == DType::bf16) { return; }
  throw ConfigError{fmt::format(
      "reduce dtype {} is not supported: use fp32, or bf16, which has the range of fp32",
      to_string(dtype))};
}

void check_align(std::int64_t align_elems) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  if (align_elems >= kAlignElems && align_elems <= most && align_elems % kAlignElems == 0) {
    return;
  }
  throw ConfigError{fmt::format("align_elems is {}: choose a multiple of {} elements up to 2^20",
                                align_elems, kAlignElems)};
}

/// What concerns gradients has no effect where there are none.
void check_purpose(const ModelOptions& options) {
  if (options.purpose == Purpose::training) { return; }
  const char* without_effect = nullptr;
  if (options.gradient != DType::fp32) { without_effect = "gradient"; }
  if (options.reduce != DType::fp32) { without_effect = "reduce"; }
  if (options.accumulate != 1) { without_effect = "accumulate"; }
  if (options.accumulate_mode != AccumulateMode::automatic) { without_effect = "accumulate_mode"; }
  if (options.loss_scaling != LossScaling{}) { without_effect = "loss_scaling"; }
  if (options.max_skips != ModelOptions{}.max_skips) { without_effect = "max_skips"; }
  if (options.master_weights != MasterWeights::fp32) { without_effect = "master_weights"; }
  if (options.offload != Offload::none) { without_effect = "offload"; }
  if (options.checks != Checks::off) { without_effect = "checks"; }
  if (without_effect == nullptr) { return; }
  throw ConfigError{
      fmt::format("a model for inference has no gradients: leave `{}` alone", without_effect)};
}

/// More than `kMostElems` if so, whatever the sum.
std::int64_t padded_elems(const UnitLayout& layout) {
  std::int64_t sum = 0;
  for (const SegmentLayout& segment : layout.segments()) {
    sum = std::min(sum, kMostElems) + std::min(segment.padded_elems(), kMostElems + 1);
  }
  return sum;
}

void validate(const ModelOptions& options) {
  check_dtype(options.compute, "compute");
  check_dtype(options.gradient, "gradient");
  check_reduce_dtype(options.reduce);
  check_align(options.align_elems);
  check_purpose(options);
  if (options.prefetch < 0 || options.prefetch > 1024) {
    throw ConfigError{
        fmt::format("prefetch is {}: choose a number of units from 0 to 1024", options.prefetch)};
  }
  if (options.prefetch_backward &&
      (*options.prefetch_backward < 0 || *options.prefetch_backward > 1024)) {
    throw ConfigError{
        fmt::format("prefetch_backward is {}: choose a number of units from 0 to 1024",
                    *options.prefetch_backward)};
  }
  if (options.persist_elems < 0) {
    throw ConfigError{fmt::format("persist_elems is {}: choose a number of elements, or 0 for none",
                                  options.persist_elems)};
  }
  engine::check_resharding(options);
  engine::check_offload(options);
  if (options.accumulate < 1) {
    throw ConfigError{
        fmt::format("accumulate is {}: a step has at least 1 micro-batch", options.accumulate)};
  }
  if (options.bucket_bytes == 0 || options.first_bucket_bytes == 0) {
    throw ConfigError{"bucket_bytes and first_bucket_bytes must be at least 1"};
  }
  tessera::validate(options.loss_scaling, options.compute, options.gradient);
  if (options.max_skips < 0) {
    throw ConfigError{
        fmt::format("max_skips is {}: give the number of steps skipped in a row that end the run, "
                    "or 0 for none",
                    options.max_skips)};
  }
}

// Unique in the process: a unit kept from a world that has ended matches no later model.
std::uint32_t next_number() {
  static std::atomic<std::uint32_t> made = 0;
  return ++made;
}

}  // namespace

ShardedModel::State::State(World& world_, const ModelOptions& options_)
    : guest{world_}, world{world_}, options{options_}, number{next_number()}, journal{world_} {
  validate(options);
  engine::check_shard_group(options, world.size());
  engine::check_mesh(options, world.size());
}

Unit ShardedModel::State::add_unit(std::string name, std::vector<ParameterSpec> specs,
                                   UnitOptions unit_options) {
  expects(parameters == nullptr, "add_unit: units are declared before materialize");
  expects(!name.empty(), "add_unit: a unit needs a name");
  if (unit_names.contains(name)) {
    throw ContractError{fmt::format("add_unit: there is a unit called '{}' already", name)};
  }
  for (const ParameterSpec& spec : specs) {
    check_dtype(spec.dtype.value_or(DType::fp32), "parameter");
  }
  check_reshard(name, unit_options);
  UnitLayout layout = UnitLayout::make(
      std::move(specs), {options.compute, options.gradient, options.reduce, options.align_elems},
      engine::data_ranks(options, world.size()));
  const std::int64_t elems = padded_elems(layout);
  if (elems > kMostElems - declared_elems) {
    throw ConfigError{fmt::format(
        "unit '{}' brings the model to more than 2^50 elements: check its shapes", name)};
  }
  UnitState unit{name, std::move(layout), unit_options};
  resolve_aliases(unit);
  engine::UnitLife life{.name = name, .shapes = {}};
  for (const ParameterInfo& info : unit.infos) { life.shapes.push_back(info.shape); }
  units.push_back(std::move(unit));
  lives->push_back(std::move(life));
  unit_names.insert(std::move(name));
  declared_elems += elems;
  return {units.size() - 1, number};
}

void ShardedModel::State::resolve_aliases(UnitState& unit) {
  const auto specs = unit.layout.specs();
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const ParameterSpec& spec = specs[p];
    if (!spec.tied_to) {
      unit.infos[p] = {unit.name, spec.name, spec.shape, spec.trainable, next_parameter_id++};
      continue;
    }
    const TiedTo& tie = *spec.tied_to;
    const auto owner = std::ranges::find(units, tie.unit, &UnitState::name);
    const auto index = owner == units.end() ? std::nullopt : owner->layout.find(tie.parameter);
    if (!index || owner->alias_of[*index]) {
      throw ContractError{fmt::format(
          "add_unit: '{}.{}' is tied to '{}.{}', which no earlier unit owns; register the owner "
          "first",
          unit.name, spec.name, tie.unit, tie.parameter)};
    }
    if (owner->layout.specs()[*index].shape != spec.shape) {
      throw ContractError{fmt::format("add_unit: '{}.{}' has shape {} but its owner '{}.{}' has {}",
                                      unit.name, spec.name, spec.shape.to_string(), tie.unit,
                                      tie.parameter,
                                      owner->layout.specs()[*index].shape.to_string())};
    }
    const ParameterSpec& owned = owner->layout.specs()[*index];
    if ((!spec.trainable && owned.trainable) || (spec.dtype && spec.dtype != owned.dtype)) {
      throw ContractError{fmt::format(
          "add_unit: '{}.{}' is tied to '{}.{}', which decides about training and dtype: leave "
          "them to the owner",
          unit.name, spec.name, tie.unit, tie.parameter)};
    }
    const auto owner_unit = static_cast<std::size_t>(owner - units.begin());
    unit.alias_of[p] = engine::ParameterRef{owner_unit, *index};
    unit.infos[p] = owner->infos[*index];
    owner->options.kind = UnitKind::root;  // stays over the union of its uses
    if (std::ranges::find(unit.owners, owner_unit) == unit.owners.end()) {
      unit.owners.push_back(owner_unit);
    }
  }
}

void ShardedModel::State::declare_order(const std::vector<Unit>& forward) {
  expects(parameters == nullptr, "declare_order: the order is declared before materialize");
  std::vector<std::size_t> order;
  for (const Unit unit : forward) {
    require_mine(unit, "declare_order");
    order.push_back(unit.index());
  }
  schedule.declare(order);
  declared = !order.empty();
}

std::string ShardedModel::State::describe() const {
  std::string text =
      fmt::format("strategy {}{} {} prefetch {} {} accumulate {} {} buckets {} {}\n",
                  to_string(options.strategy), engine::describe_mesh(options),
                  options.purpose == Purpose::training ? "training" : "inference", options.prefetch,
                  options.prefetch_backward.value_or(options.prefetch), options.accumulate,
                  to_string(resolve(options.accumulate_mode, options.strategy)),
                  options.first_bucket_bytes, options.bucket_bytes);
  text += fmt::format("align {}\n", options.align_elems);
  text += fmt::format("loss scaling {}, max skips {}, master weights {}\n",
                      tessera::describe(options.loss_scaling, options.compute, options.gradient),
                      options.max_skips, to_string(options.master_weights));
  text += fmt::format("offload {} keep {}\n", to_string(options.offload), options.offload_keep);
  text += fmt::format("checks {}\n", to_string(options.checks));
  for (const UnitState& unit : units) {
    text += fmt::format("unit {} kind {} gradients {} residence {}\n", unit.name,
                        static_cast<int>(unit.options.kind),
                        static_cast<int>(unit.options.gradients), static_cast<int>(unit.residence));
    text += unit.layout.describe();
  }
  return text;
}

std::string ShardedModel::State::describe(const Optimizer& rule,
                                          const OptimizerOptions& rule_options) const {
  return fmt::format("{}\nclip_norm {}\nmoments {} rounding {} seed {}\n", tessera::describe(rule),
                     rule_options.clip_norm, to_string(rule_options.moments),
                     to_string(rule_options.rounding), rule_options.rounding_seed);
}

void ShardedModel::State::require_blocks(const OptimizerOptions& rule_options) const {
  if (rule_options.moments != MomentFormat::int8 || options.align_elems % kMomentBlock == 0) {
    return;
  }
  throw ConfigError{fmt::format(
      "int8 moments come in blocks of {} elements, and this model is laid out in multiples of {}: "
      "make it with ModelOptions::align_elems {}",
      kMomentBlock, options.align_elems, std::lcm(kMomentBlock, options.align_elems))};
}

void ShardedModel::State::require_rounding(const OptimizerOptions& rule_options) const {
  if (rule_options.rounding == Rounding::nearest || rule_options.moments == MomentFormat::bf16) {
    return;
  }
  for (const UnitState& unit : units) {
    for (const SegmentLayout& segment : unit.layout.segments()) {
      if (segment.trainable() && segment.dtypes().parameter != segment.dtypes().master) { return; }
    }
  }
  throw ConfigError{
      "stochastic rounding has no effect: neither parameters that are trained nor moments are of "
      "16 bits; leave `rounding` alone, or use 16-bit parameters or moments"};
}

void ShardedModel::State::require_masters(const Optimizer& rule,
                                          const OptimizerOptions& rule_options) const {
  if (options.master_weights == MasterWeights::fp32) { return; }
  if (rule_options.rounding == Rounding::stochastic) {
    throw ConfigError{
        "stochastic rounding: a parameter that is not the nearest to its master does not complete "
        "a remainder; use rounding nearest, or fp32 master weights"};
  }
  if (const auto* const custom = std::get_if<CustomOptimizer>(&rule)) {
    throw ConfigError{fmt::format(
        "the optimizer '{}' is given fp32 weights, which remainders do not hold; use fp32 master "
        "weights, or one of the library's rules",
        custom->name)};
  }
}

void ShardedModel::State::materialize(const Initializer& initial) {
  rethrow_failure();
  expects(parameters == nullptr, "materialize: the model has been materialized already");
  expects(!units.empty(), "materialize: the model has no units; call add_unit first");
  expects(initial != nullptr, "materialize: the initializer is empty");
  for (const UnitState& unit : units) {
    if (unit.options.gradients == GradientInit::unzeroed && options.accumulate > 1 &&
        resolve(options.accumulate_mode, options.strategy) == AccumulateMode::deferred) {
      throw ConfigError{fmt::format(
          "unit '{}' asks for unzeroed gradients, but {} micro-batches accumulate in them: use "
          "zeroed gradients, or accumulate_mode every",
          unit.name, options.accumulate)};
    }
  }
  engine::check_master_weights(units, options.master_weights);
  decide_residence();
  decide_offload();
  if (engine::can_disagree(world)) { engine::require_agreement(world, "the model", describe()); }
  group.emplace(engine::Sharding::make(world, options));
  for (UnitState& unit : units) { unit.kept_shards = group->kept_shards(); }
  spans.resize(units.size());
  // A device that cannot wait for the host says so before there is anything to give back.
  if (options.offload != Offload::none) { (void)world.host_stream(); }
  try {
    parameters = engine::make_parameter_store(world, units, journal, options, *group);
    if (options.purpose == Purpose::training) {
      gradients = std::make_unique<engine::GradientStore>(
          world, units, journal, options, *group, schedule.most_pending([this](std::size_t u) {
            return !units[u].is_root() && units[u].trainable();
          }));
      masters =
          std::make_unique<engine::MasterStore>(world, units, *gradients, options.master_weights);
    }
    if (options.checks == Checks::memory && world.device().computes()) {
      checks = std::make_unique<engine::MemoryChecks>(world, units, *gradients, options);
    }
    if (gradients != nullptr && gradients->host() != nullptr) {
      host_weights = std::make_unique<engine::HostWeights>(world, units, *parameters, *gradients);
    }
    Buffer scratch = initial_scratch();
    world.compute([&] {
      for (std::size_t u = 0; u < units.size(); ++u) { initialise(u, initial, scratch); }
    });
  } catch (...) {
    forget_stores();
    throw;
  }
  parameters->updated(units_in_forward_order());
}

// Out of memory, or an initializer that threw: the model is declared only, as before.
void ShardedModel::State::forget_stores() noexcept {
  try {
    world.compute_stream().wait();
  } catch (...) {  // the stream has ended: it touches nothing any more
  }
  host_weights.reset();
  checks.reset();
  masters.reset();
  gradients.reset();
  parameters.reset();
}

void ShardedModel::State::optimize_with(const Optimizer& optimizer_,
                                        const OptimizerOptions& optimizer_options) {
  rethrow_failure();
  require_training("optimize_with");
  expects(parameters != nullptr, "optimize_with: call materialize first");
  expects(optimizer == nullptr, "optimize_with: the model has an optimizer already");
  tessera::validate(optimizer_);
  tessera::validate(optimizer_options, optimizer_);
  require_rounding(optimizer_options);
  require_masters(optimizer_, optimizer_options);
  require_blocks(optimizer_options);
  check_offload(optimizer_);
  if (first_loss_scale(options.loss_scaling, options.compute, options.gradient) != 1.0F) {
    expects(stage == Stage::idle && micro_batch == 0,
            "optimize_with: the loss is to be scaled, and the micro-batches before have not been: "
            "call it before the first forward scope of the step");
  }
  const engine::ParameterRules rules = engine::resolve_rules(units, optimizer_, optimizer_options);
  if (engine::can_disagree(world)) {
    engine::require_agreement(
        world, "the optimizer",
        describe(optimizer_, optimizer_options) + engine::describe(units, rules));
  }
  const engine::TrainingState state{units, *parameters, *gradients, *masters, host_weights.get()};
  auto step = std::make_unique<engine::OptimizerStep>(world, state, options, optimizer_,
                                                      optimizer_options, rules, *group);
  search = std::make_unique<engine::NonFiniteSearch>(world, options.max_skips);
  optimizer = std::move(step);  // both are there, or neither: memory may run out
}

}  // namespace tessera

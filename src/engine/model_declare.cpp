#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "engine/agreement.hpp"
#include "engine/model/options.hpp"
#include "engine/model/unit_rules.hpp"
#include "engine/model_state.hpp"
#include "engine/shard_group.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using engine::UnitState;

// Unique in the process: a unit kept from a world that has ended matches no later model.
std::uint32_t next_number() {
  static std::atomic<std::uint32_t> made = 0;
  return ++made;
}

std::vector<engine::DeclaredUnit> declared_units(const engine::Units& units) {
  std::vector<engine::DeclaredUnit> declared;
  for (const UnitState& unit : units) {
    declared.push_back({unit.name, &unit.layout, unit.options});
  }
  return declared;
}

}  // namespace

ShardedModel::State::State(World& world_, const ModelOptions& options_)
    : guest{world_}, world{world_}, options{options_}, number{next_number()}, journal{world_} {
  validate(options, world.size());
}

Unit ShardedModel::State::add_unit(std::string name, std::vector<ParameterSpec> specs,
                                   UnitOptions unit_options) {
  expects(parameters == nullptr, "add_unit: units are declared before materialize");
  expects(!name.empty(), "add_unit: a unit needs a name");
  if (unit_names.contains(name)) {
    throw ContractError{fmt::format("add_unit: there is a unit called '{}' already", name)};
  }
  engine::check_unit(name, specs, unit_options, options);
  UnitLayout layout = UnitLayout::make(
      std::move(specs), {options.compute, options.gradient, options.reduce, options.align_elems},
      world.size());
  const std::int64_t elems = engine::add_elems(declared_elems, name, layout);
  UnitState unit{name, std::move(layout), unit_options};
  resolve_aliases(unit);
  engine::UnitLife life{.name = name, .shapes = {}};
  for (const ParameterInfo& info : unit.infos) { life.shapes.push_back(info.shape); }
  units.push_back(std::move(unit));
  lives->push_back(std::move(life));
  unit_names.insert(std::move(name));
  declared_elems = elems;
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
  const std::string groups =
      options.shard_group > 0 ? fmt::format(" in groups of {}", options.shard_group) : "";
  std::string text =
      fmt::format("strategy {}{} {} prefetch {} {} accumulate {} {} buckets {} {}\n",
                  to_string(options.strategy), groups,
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

void ShardedModel::State::materialize(const Initializer& initial) {
  rethrow_failure();
  expects(parameters == nullptr, "materialize: the model has been materialized already");
  expects(!units.empty(), "materialize: the model has no units; call add_unit first");
  expects(initial != nullptr, "materialize: the initializer is empty");
  engine::check_units(declared_units(units), options);
  decide_residence();
  decide_offload();
  if (engine::can_disagree(world)) { engine::require_agreement(world, "the model", describe()); }
  group.emplace(engine::ShardGroup::make(world, options));
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
  validate(options, optimizer_, optimizer_options);
  engine::check_update(declared_units(units), options, optimizer_, optimizer_options);
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

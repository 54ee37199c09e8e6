#include "engine/model/declaration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/rules/option_list.hpp"
#include "engine/rules/options.hpp"
#include "engine/unit/parameter_home.hpp"
#include "tessera/base/error.hpp"

namespace tessera::engine {

/// The layout that the unit would have without `tensor`. Rules that read it decide alike on all
/// ranks.
UnitLayout Declaration::whole_layout(const UnitLayout& layout) const {
  return UnitLayout::make(
      {layout.specs().begin(), layout.specs().end()},
      {options_.compute, options_.gradient, options_.reduce, options_.align_elems}, layout.ranks());
}

std::size_t Declaration::add_unit(std::string name, std::vector<ParameterSpec> specs,
                                  const UnitOptions& options) {
  expects(!name.empty(), "add_unit: the name is empty; give every unit a name");
  if (names_.contains(name)) {
    throw ContractError{
        fmt::format("add_unit: unit '{}' already exists; give each unit a name of its own", name)};
  }
  check_unit(name, specs, options, options_);
  UnitLayout layout = UnitLayout::make(
      std::move(specs),
      {options_.compute, options_.gradient, options_.reduce, options_.align_elems, place_.tensor},
      data_ranks(options_, ranks_));
  const std::int64_t elems = add_elems(elems_, name, layout);
  UnitPlan unit{name, std::move(layout), options};
  resolve_aliases(unit);
  declared_.push_back(place_.tensor.size == 1 ? unit.layout : whole_layout(unit.layout));
  plans_.push_back(std::move(unit));
  names_.insert(std::move(name));
  elems_ = elems;
  return plans_.size() - 1;
}

void Declaration::resolve_aliases(UnitPlan& unit) {
  const auto specs = unit.layout.specs();
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const ParameterSpec& spec = specs[p];
    if (spec.tied_to) {
      alias(unit, p, *spec.tied_to);
    } else {
      unit.infos[p] = {unit.name, spec.name, spec.shape, spec.trainable, next_parameter_id_++};
    }
  }
}

void Declaration::alias(UnitPlan& unit, std::size_t parameter, const TiedTo& tie) {
  const ParameterSpec& spec = unit.layout.specs()[parameter];
  const auto owner = std::ranges::find(plans_, tie.unit, &UnitPlan::name);
  const auto index = owner == plans_.end() ? std::nullopt : owner->layout.find(tie.parameter);
  if (!index || owner->alias_of[*index]) {
    throw ContractError{
        fmt::format("add_unit: '{}.{}' is tied to '{}.{}', which no earlier unit owns; add the "
                    "owner's unit first",
                    unit.name, spec.name, tie.unit, tie.parameter)};
  }
  const ParameterSpec& owned = owner->layout.specs()[*index];
  if (owned.shape != spec.shape) {
    throw ContractError{fmt::format(
        "add_unit: '{}.{}' has shape {}, but its owner '{}.{}' has {}; declare equal shapes",
        unit.name, spec.name, spec.shape.to_string(), tie.unit, tie.parameter,
        owned.shape.to_string())};
  }
  if (spec.cut != owned.cut || spec.tensor_gradient != owned.tensor_gradient) {
    throw ContractError{
        fmt::format("add_unit: '{}.{}' is tied to '{}.{}', but the two are cut differently along "
                    "`tensor`: declare the same cut and tensor_gradient",
                    unit.name, spec.name, tie.unit, tie.parameter)};
  }
  if ((!spec.trainable && owned.trainable) || (spec.dtype && spec.dtype != owned.dtype)) {
    throw ContractError{
        fmt::format("add_unit: '{}.{}' is tied to '{}.{}', which decides trainability and dtype: "
                    "set them on the owner only",
                    unit.name, spec.name, tie.unit, tie.parameter)};
  }
  const auto owner_unit = static_cast<std::size_t>(owner - plans_.begin());
  if (std::ranges::find(owner->places, unit.options.pipe) == owner->places.end()) {
    owner->places.insert(std::ranges::upper_bound(owner->places, unit.options.pipe),
                         unit.options.pipe);
  }
  unit.alias_of[parameter] = ParameterRef{owner_unit, *index};
  unit.infos[parameter] = owner->infos[*index];
  owner->options.kind = UnitKind::root;  // stays gathered over the union of its uses
  if (std::ranges::find(unit.owners, owner_unit) == unit.owners.end()) {
    unit.owners.push_back(owner_unit);
  }
}

void Declaration::declare_order(const std::vector<std::size_t>& forward) {
  forward_ = forward;
  order_is_declared_ = !forward.empty();
}

std::vector<DeclaredUnit> Declaration::units() const {
  std::vector<DeclaredUnit> units;
  for (std::size_t u = 0; u < plans_.size(); ++u) {
    units.push_back({plans_[u].name, &declared_[u], plans_[u].options});
  }
  return units;
}

bool Declaration::is_here(std::size_t unit) const noexcept {
  return plans_[unit].is_at(place_.pipe);
}

std::vector<std::size_t> Declaration::pass_order() const {
  return with_the_rest(plans_, forward_);
}

// ------------------------------------------------------------------------------------- decisions

void Declaration::decide() {
  std::vector<std::size_t> here;
  std::ranges::copy_if(forward_, std::back_inserter(here),
                       [this](std::size_t unit) { return is_here(unit); });
  order_.declare(here);
  check_units(units(), options_);
  check_sums();
  check_mesh_is_used();
  decide_residence();
  decide_offload();
}

// Sums along `tensor` and `pipe` are computed on the device.
void Declaration::check_sums() const {
  if (options_.offload != Offload::optimizer) { return; }
  for (std::size_t u = 0; u < plans_.size(); ++u) {
    const bool parts =
        place_.tensor.size > 1 &&
        std::ranges::any_of(declared_[u].specs(), [](const ParameterSpec& spec) {
          return spec.tensor_gradient == TensorGradient::part && spec.trainable && !spec.tied_to;
        });
    if (!parts && (plans_[u].places.size() == 1 || updated_elems(declared_[u]) == 0)) { continue; }
    throw ConfigError{fmt::format(
        "unit '{}': `offload` optimizer moves its gradients to the host before those of {} are "
        "added; set `offload` to state or none",
        plans_[u].name, parts ? "the ranks along tensor" : "the places along pipe that share it")};
  }
}

// A rank that only repeats another rank's work is a mistake.
void Declaration::check_mesh_is_used() const {
  if (options_.mesh.empty()) { return; }
  const MeshShape mesh{options_.mesh};
  const bool cuts = std::ranges::any_of(declared_, [](const UnitLayout& layout) {
    return std::ranges::any_of(layout.specs(),
                               [](const ParameterSpec& spec) { return spec.cut.has_value(); });
  });
  if (mesh.size("tensor") > 1 && !cuts) {
    throw ConfigError{
        fmt::format("mesh {}: no parameter is cut along tensor, so its ranks would repeat each "
                    "other's work; give parameters a cut, or leave tensor at 1",
                    mesh.to_string())};
  }
  for (int place = 0; place < mesh.size("pipe"); ++place) {
    const bool used =
        std::ranges::any_of(plans_, [&](const UnitPlan& plan) { return plan.is_at(place); });
    if (used) { continue; }
    throw ConfigError{
        fmt::format("mesh {}: no unit is at place {} along pipe; set `pipe` of some units to it, "
                    "or leave pipe at 1",
                    mesh.to_string(), place)};
  }
}

// Called when all aliases are known: an alias turns its owner into a root unit.
void Declaration::decide_residence() {
  if (!gathers(options_.strategy)) { return; }
  for (UnitPlan& plan : plans_) {
    using enum Residence;
    const bool stays = plan.is_root() ||
                       plan.options.reshard.value_or(options_.reshard) == Reshard::after_backward;
    plan.residence = stays ? micro_batch : use;
    const std::int64_t elems = plan.layout.whole_elems();
    if (elems > 0 && elems <= options_.persist_elems) { plan.residence = update; }
  }
}

// The last units stay: the norm of what is on the device is added to the host's norm, in unit
// order.
void Declaration::decide_offload() {
  if (options_.offload == Offload::none) { return; }
  std::int64_t total = 0;
  for (std::size_t u = 0; u < plans_.size(); ++u) {
    total += is_here(u) ? updated_elems(declared_[u]) : 0;
  }
  const double most = static_cast<double>(options_.offload_keep) * static_cast<double>(total);
  std::int64_t kept = 0;
  bool full = false;
  for (std::size_t u = plans_.size(); u-- > 0;) {
    if (!is_here(u)) { continue; }
    const std::int64_t elems = updated_elems(declared_[u]);
    full = full || static_cast<double>(kept + elems) > most;
    plans_[u].offload = full && elems > 0 ? options_.offload : Offload::none;
    kept += full ? 0 : elems;
  }
}

// After layouts and shards. Ranks that keep shards of a unit decide alike: its bytes are theirs.
void Declaration::decide_whole() {
  whole_.clear();
  if (resolve(options_.keep_whole) == KeepWhole::never) { return; }
  const StrategyTraits traits = traits_of(options_.strategy);
  const auto bytes_of = [&](const auto& of) {
    std::vector<UnitBytes> bytes;
    std::ranges::transform(plans_, std::back_inserter(bytes), of);
    return bytes;
  };
  if (traits.parameters == Holding::sharded) {
    keep_whole(StateTensor::parameters, bytes_of([](const UnitPlan& plan) {
                 return UnitBytes{plan.parameter_bytes(), plan.parameter_shard_bytes(),
                                  plan.has_own_slot()};
               }),
               most_prefetch(options_) + 1);
  }
  // Gradients of several micro-batches are added in shards, or whole in any case.
  if (traits.gradients != Holding::sharded || options_.accumulate > 1 ||
      options_.purpose == Purpose::inference) {
    return;
  }
  const int slots =
      std::max(options_.tuning.gradient_slots, order_.most_pending([this](std::size_t unit) {
        return !plans_[unit].is_root() && plans_[unit].trainable();
      }));
  keep_whole(StateTensor::gradients, bytes_of([](const UnitPlan& plan) {
               if (plan.updated_on_host()) { return UnitBytes{}; }  // nothing stays on the device
               return UnitBytes{plan.gradient_bytes(), plan.gradient_shard_bytes(), plan.is_root()};
             }),
             slots);
}

void Declaration::keep_whole(StateTensor what, const std::vector<UnitBytes>& bytes, int slots) {
  for (const WholeRun& run : engine::whole_units(bytes, slots)) {
    WholeUnits whole{what, {}, run.whole_bytes, run.sharded_bytes};
    for (const std::size_t u : run.units) {
      StrategyTraits& traits = plans_[u].traits;
      (what == StateTensor::parameters ? traits.parameters : traits.gradients) =
          Holding::replicated;
      whole.units.push_back(plans_[u].name);
    }
    // One rank has everything whole: there is nothing to report.
    if (data_ranks(options_, ranks_) > 1) { whole_.push_back(std::move(whole)); }
  }
}

void Declaration::decide_owned(const Sharding& group, int rank) {
  const StrategyTraits traits = traits_of(options_.strategy);
  const auto held = [&](Holding holding, const SegmentLayout& segment) -> Range {
    if (holding == Holding::sharded) { return group.kept(segment); }
    const bool none = holding == Holding::rank0 && rank != 0;
    return {0, none ? 0 : segment.padded_elems()};
  };
  for (std::size_t u = 0; u < plans_.size(); ++u) {
    UnitPlan& plan = plans_[u];
    plan.kept_shards = group.kept_shards();
    plan.traits = traits;
    if (!is_here(u)) { plan.layout = plan.layout.without_segments(); }
  }
  decide_whole();
  for (UnitPlan& plan : plans_) {
    plan.owned.clear();
    for (const SegmentLayout& segment : plan.layout.segments()) {
      plan.owned.push_back(
          {.parameters = held(plan.traits.parameters, segment),
           .updates = segment.trainable() ? held(traits.optimizer, segment) : Range{},
           .normed = plan.places.front() == place_.pipe &&
                     (segment.tensor() == TensorKind::own || place_.tensor.index == 0)});
    }
  }
}

std::string Declaration::describe() const {
  std::string text;
  for_each_model_option([&, options = settled(options_)](const auto& option) {
    text += fmt::format("{} {}\n", option.name, text_of(option.of(options)));
  });
  for (const UnitPlan& plan : plans_) {
    text += fmt::format("unit {} kind {} gradients {} residence {}", plan.name,
                        static_cast<int>(plan.options.kind),
                        static_cast<int>(plan.options.gradients), static_cast<int>(plan.residence));
    text += plan.options.pipe > 0 ? fmt::format(" pipe {}\n", plan.options.pipe) : "\n";
    text += plan.layout.describe();
  }
  return text;
}

}  // namespace tessera::engine

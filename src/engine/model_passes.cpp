#include <fmt/format.h>

#include <utility>

#include "engine/agreement.hpp"
#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

using engine::Phase;
using engine::UnitState;

void ShardedModel::State::rethrow_failure() {
  if (failure) { std::rethrow_exception(failure); }
}

Unit ShardedModel::State::unit(std::size_t index) const {
  if (index < units.size()) { return {index, number}; }
  throw ContractError{
      fmt::format("unit: the model has {} units, and none at place {}", units.size(), index)};
}

void ShardedModel::State::require_mine(Unit unit, const char* call) const {
  if (unit.model_ == number && unit.index() < units.size()) { return; }
  std::string known;
  for (const UnitState& mine : units) {
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", mine.name);
  }
  throw ContractError{fmt::format(
      "{}: {}; give it what add_unit of this model has returned, or unit() (it has {})", call,
      unit == Unit{} ? "a default Unit{} is no unit" : "the unit is of another model",
      known.empty() ? "none" : known)};
}

UnitState& ShardedModel::State::unit_at(Unit unit, const char* call) {
  require_mine(unit, call);
  return units[unit.index()];
}

std::vector<std::size_t> ShardedModel::State::with_owners(std::size_t unit) const {
  std::vector<std::size_t> all = units[unit].owners;
  all.push_back(unit);
  return all;
}

// ------------------------------------------------------------------------------------- scopes

void ShardedModel::State::open(Phase phase, Unit unit) {
  rethrow_failure();
  check_if_stuck();
  expects(parameters != nullptr, "a unit is opened before materialize");
  require_mine(unit, to_string(phase));
  UnitState& state = units[unit.index()];
  if (evaluating && phase == Phase::forward) { return open_in_evaluation(unit); }
  require_training(phase == Phase::forward ? "forward" : "backward");
  if (phase == Phase::forward) {
    if (stage == Stage::backward) { finish_micro_batch(); }
    if (stage == Stage::idle) { begin_micro_batch(); }
  } else if (state.backward_uses >= state.forward_uses) {
    throw ContractError{fmt::format(
        "backward of unit '{}' is opened {} times in a micro-batch, its forward {} times",
        state.name, state.backward_uses + 1, state.forward_uses)};
  }
  require_closed(unit.index());
  if (phase == Phase::backward) {
    compare_gradients(unit);
    check_gradients_can_open(unit.index());
  }
  make_room(unit.index());
  if (phase == Phase::backward) { stage = Stage::backward; }
  journal.enter(phase == Phase::forward ? trace::Phase::forward : trace::Phase::backward,
                state.name);

  schedule.note({phase, unit.index()});
  for (const std::size_t u : with_owners(unit.index())) { use_parameters(u); }
  prefetch(schedule);
  for (const std::size_t u : with_owners(unit.index())) {
    parameters->await(u);
    ++units[u].open_scopes;
    ++(phase == Phase::forward ? units[u].forward_uses : units[u].backward_uses);
    if (phase == Phase::backward && !gradients->is_open(u)) { gradients->open(u); }
  }
  ++open_scopes;
  if (phase == Phase::forward) { search_parameters(unit); }
  if (phase == Phase::backward) { guard_gradients(unit); }
  journal.issue(to_string(phase), state.name);
  spans[unit.index()] = journal.begin_span();
}

void ShardedModel::State::require_closed(std::size_t unit) const {
  if (units[unit].open_scopes == 0) { return; }
  throw ContractError{
      fmt::format("unit '{}' is open already: close its scope first", units[unit].name)};
}

void ShardedModel::State::check_gradients_can_open(std::size_t unit) const {
  for (const std::size_t u : with_owners(unit)) {
    const UnitState& state = units[u];
    if (!gradients->can_open(u)) {
      throw ContractError{fmt::format(
          "unit '{}' has no place for its gradients: the slots are taken by units whose backward "
          "scopes have not all been closed ({}); close them first, or {}",
          state.name, gradients->slot_owners(u),
          declared ? "follow the order that declare_order was told, for which slots were made"
                   : "tell declare_order how often each unit is used, so that there are slots for "
                     "all that are on their way back at once")};
    }
    const bool overwrites = state.options.gradients == GradientInit::unzeroed && state.trainable();
    if (overwrites && state.backward_uses > 0) {
      throw ContractError{fmt::format(
          "unit '{}' has unzeroed gradients and a second backward scope, which would overwrite the "
          "first's: use zeroed gradients",
          state.name)};
    }
  }
}

void ShardedModel::State::use_parameters(std::size_t unit) {
  if (!parameters->held(unit)) { parameters->fetch(unit); }
  units[unit].gathered_ahead = false;
}

// A unit gathered ahead that was not the next one used (the order changed) gives its slot back.
void ShardedModel::State::make_room(std::size_t unit) {
  if (parameters->held(unit) || parameters->can_fetch(unit)) { return; }
  std::string holders;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].has_own_slot() || !parameters->held(u)) { continue; }
    if (units[u].open_scopes == 0) {
      parameters->await(u);
      parameters->release(u, world.compute_stream());
    } else {
      holders += fmt::format(" '{}'", units[u].name);
    }
  }
  if (!parameters->can_fetch(unit)) {
    // The deeper of the two decides how many slots there are.
    const int backward = options.prefetch_backward.value_or(options.prefetch);
    const bool by_backward = backward > options.prefetch;
    throw ContractError{fmt::format(
        "unit '{}' cannot be gathered: every slot holds a unit in an open scope ({}); close a "
        "scope, or raise {} (now {})",
        units[unit].name, holders.substr(holders.empty() ? 0 : 1),
        by_backward ? "prefetch_backward" : "prefetch", by_backward ? backward : options.prefetch)};
  }
}

void ShardedModel::State::prefetch(const engine::Schedule& order) {
  int ahead = 0;
  for (const engine::Use& use : order.upcoming()) {
    const int depth = use.phase == Phase::backward
                          ? options.prefetch_backward.value_or(options.prefetch)
                          : options.prefetch;
    if (ahead >= depth) { return; }
    for (const std::size_t u : with_owners(use.unit)) {
      UnitState& unit = units[u];
      // Released first, then gathered again.
      if (!unit.has_own_slot() && unit.open_scopes > 0) { return; }
      if (!parameters->held(u)) {
        if (!parameters->can_fetch(u)) { return; }
        parameters->fetch(u);
        unit.gathered_ahead = true;
      }
      // What stays from an earlier use has not been gathered ahead of this one.
      const bool counts = unit.has_own_slot() ? unit.gathered_ahead : true;
      ahead += counts && !unit.is_root() ? 1 : 0;
    }
  }
}

void ShardedModel::State::close(Phase phase, Unit unit) {
  journal.end_span(to_string(phase), units[unit.index()].name, spans[unit.index()]);
  if (phase == Phase::backward) {
    search_gradients(unit);
    inspect_gradients(unit);
  }
  --open_scopes;
  ++(*lives)[unit.index()].ended_scopes;
  for (const std::size_t u : with_owners(unit.index())) {
    --units[u].open_scopes;
    leave_parameters(u, phase);
    // An owner may still be in another scope, its own or another alias's.
    const bool done = units[u].backward_uses == units[u].forward_uses && units[u].open_scopes == 0;
    if (phase == Phase::backward && done) {
      gradients->complete(u, micro_batch + 1 == options.accumulate);
    }
  }
  if (phase == Phase::backward) { seal_gradients(unit); }
}

void ShardedModel::State::leave_parameters(std::size_t unit, Phase phase) {
  const UnitState& state = units[unit];
  const bool last_use = phase == Phase::backward && state.backward_uses == state.forward_uses;
  if (state.has_own_slot() && !last_use) { return; }
  if (state.open_scopes == 0) { parameters->release(unit, world.compute_stream()); }
}

void ShardedModel::State::release_parameters() {
  for (std::size_t u = units.size(); u-- > 0;) {
    if (!parameters->held(u)) { continue; }
    parameters->await(u);
    parameters->release(u, world.compute_stream());
  }
}

void ShardedModel::State::close_noexcept(Phase phase, Unit unit, bool unwinding) noexcept {
  if (failure || guest.world_ended()) { return; }
  try {
    if (unwinding) {
      throw ContractError{
          fmt::format("the {} scope of unit '{}' was left by an exception; the model cannot go on",
                      to_string(phase), units[unit.index()].name)};
    }
    evaluating ? close_in_evaluation(unit) : close(phase, unit);
  } catch (...) { failure = std::current_exception(); }
}

/// A scope that lives on keeps its unit's slots: named, as slots would be that a bug has leaked.
void ShardedModel::State::require_scopes_ended(const char* what) const {
  if (open_scopes == 0) { return; }
  throw ContractError{
      fmt::format("{}: a scope is still open and holds the memory of unit {}; end it first", what,
                  names_of_open_units())};
}

std::string ShardedModel::State::names_of_open_units() const {
  std::string held;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].open_scopes == 0) { continue; }
    const bool has_gradients = gradients != nullptr && gradients->is_open(u);
    held += fmt::format("{}'{}' ({}{}{})", held.empty() ? "" : ", ", units[u].name,
                        to_string(parameters->category()), has_gradients ? ", " : "",
                        has_gradients ? to_string(gradients->category()) : "");
  }
  return held;
}

// ------------------------------------------------------------------------------- micro-batches

void ShardedModel::State::begin_micro_batch() {
  if (world.in_graph()) { validate_in_graph(options); }
  if (micro_batch >= options.accumulate) {
    throw ContractError{fmt::format(
        "a forward pass begins after {} micro-batches of this step: call step(), or set accumulate",
        micro_batch)};
  }
  schedule.begin_micro_batch();
  if (micro_batch == 0) {
    gradients->begin_step();
    if (search) { search->begin_step(); }
  }
  parameters->begin_micro_batch();
  stage = Stage::forward;
}

void ShardedModel::State::finish_micro_batch() {
  if (stage == Stage::idle) { return; }
  require_scopes_ended("the end of a micro-batch");
  const bool last = micro_batch + 1 == options.accumulate;
  require_backward();
  if (checks) { checks->end_micro_batch(last); }
  release_parameters();
  // What is missing is zero, on every rank alike. Units that are not all the way back first: they
  // hold the slots that those which were not used need.
  for (std::size_t u = units.size(); u-- > 0;) {
    if (gradients->is_open(u)) { gradients->complete(u, last); }
  }
  for (std::size_t u = units.size(); last && u-- > 0;) {
    if (gradients->reduced(u)) { continue; }
    gradients->open_as_zero(u);
    gradients->complete(u, last);
  }
  if (last) { gradients->flush(); }
  for (UnitState& unit : units) { unit.forward_uses = unit.backward_uses = 0; }
  schedule.end_micro_batch();
  stage = Stage::idle;
  ++micro_batch;
}

void ShardedModel::State::check_order_across_ranks() {
  if (!engine::can_disagree(world)) { return; }
  engine::require_agreement(
      world, "the order of units",
      schedule.describe([this](std::size_t unit) { return units[unit].name; }));
}

void ShardedModel::State::step(const double* loss) {
  rethrow_failure();
  require_training("step");
  expects(optimizer != nullptr, "step: call optimize_with first");
  require_scopes_ended("step");
  finish_micro_batch();
  if (micro_batch != options.accumulate) {
    throw ContractError{
        fmt::format("step: {} of {} micro-batches have been run", micro_batch, options.accumulate)};
  }
  if (world.in_graph()) { validate_in_graph(options); }
  require_loss_scale_known();
  parameters->require_slots_free();
  gradients->require_slots_free();
  gradients->settle();
  parameters->settle();
  journal.enter(trace::Phase::update, "");
  journal.issue("update", "");
  const engine::Journal::Span span = journal.begin_span();
  // The label tells ranks apart that changed their order from those that did not: the latter would
  // not come to the comparison.
  const bool new_order = schedule.take_changed();
  optimizer->reduce_scalars(loss, new_order ? "step in a new order of units" : "step");
  if (new_order) { check_order_across_ranks(); }
  if (search->needs_outcome()) { search->learn(optimizer->scalars()); }
  const bool may_be_last = search->end_step();
  const std::vector<std::size_t> forward = units_in_forward_order();
  optimizer->update(forward, journal);
  parameters->updated(forward);
  journal.end_span("update", "", span);
  journal.next_step();
  micro_batch = 0;
  stuck_check_due = may_be_last;
  check_if_stuck();
}

}  // namespace tessera

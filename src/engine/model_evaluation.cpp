#include <fmt/format.h>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

// Evaluation borrows the training's parameters and slots between two steps. Counts of uses, the
// order of the training, gradients and the micro-batch stay as they are.
namespace tessera {

using engine::Phase;

void ShardedModel::State::require_training(const char* what) const {
  if (evaluating) {
    throw ContractError{fmt::format(
        "{}: the model is being evaluated, by forward scopes alone; end the Evaluation first",
        what)};
  }
  if (options.purpose == Purpose::inference) {
    throw ContractError{
        fmt::format("{}: the model was made for inference: it only opens forward scopes while "
                    "evaluate()'s result lives; choose Purpose::training",
                    what)};
  }
}

void ShardedModel::State::begin_evaluation() {
  rethrow_failure();
  expects(parameters != nullptr, "evaluate: call materialize first");
  expects(!evaluating, "evaluate: the model is being evaluated already; end that Evaluation first");
  const int begun = micro_batch + (stage == Stage::idle ? 0 : 1);
  if (begun > 0) {
    throw ContractError{fmt::format(
        "evaluate: {} of the step's {} micro-batches have begun; evaluate between steps", begun,
        options.accumulate)};
  }
  phase_before = journal.phase();
  journal.enter(trace::Phase::evaluation, "");
  parameters->begin_micro_batch();  // dp: a copy for everyone
  if (!pass_order.is_known()) { pass_order = schedule.evaluation(); }
  pass_order.begin_micro_batch();
  evaluating = true;
}

void ShardedModel::State::open_in_evaluation(Unit unit) {
  require_closed(unit.index());
  make_room(unit.index());
  journal.enter(trace::Phase::evaluation, units[unit.index()].name);
  pass_order.note({Phase::evaluation, unit.index()});
  for (const std::size_t u : with_owners(unit.index())) { use_parameters(u); }
  prefetch(pass_order);
  for (const std::size_t u : with_owners(unit.index())) {
    parameters->await(u);
    ++units[u].open_scopes;
  }
  ++open_scopes;
  journal.issue(to_string(Phase::evaluation), units[unit.index()].name);
  spans[unit.index()] = journal.begin_span();
}

void ShardedModel::State::close_in_evaluation(Unit unit) {
  journal.end_span(to_string(Phase::evaluation), units[unit.index()].name, spans[unit.index()]);
  --open_scopes;
  ++(*lives)[unit.index()].ended_scopes;
  for (const std::size_t u : with_owners(unit.index())) {
    --units[u].open_scopes;
    leave_parameters(u, Phase::evaluation);
  }
}

void ShardedModel::State::end_pass() {
  rethrow_failure();
  require_scopes_ended("the end of a pass of an evaluation");
  release_parameters();
  pass_order.end_micro_batch();
  pass_order.begin_micro_batch();
}

void ShardedModel::State::end_evaluation_noexcept() noexcept {
  if (guest.world_ended()) { return; }
  if (!failure) {
    try {
      end_pass();
    } catch (...) { failure = std::current_exception(); }
  }
  evaluating = false;
  try {
    journal.enter(phase_before, "");
  } catch (...) {  // without memory for its name, a moment keeps its old one
  }
}

}  // namespace tessera

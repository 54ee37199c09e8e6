#include "tessera/engine/sharded_model.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

StepReport report_of(std::int64_t step, const engine::OptimizerStep::Outcome& outcome) {
  const kernels::StepScalars& scalars = outcome.scalars;
  return {.step = step,
          .loss = scalars.loss,
          .grad_norm = scalars.grad_norm,
          .clip_coefficient = scalars.clip,
          .lr = outcome.learning_rate,
          .loss_scale = scalars.used_loss_scale,
          .next_loss_scale = scalars.loss_scale,
          .skipped = scalars.apply == 0,
          .skipped_in_a_row = scalars.skipped_in_a_row};
}

}  // namespace

// Peers may be reading this rank's buffers until its collectives have ended.
ShardedModel::State::~State() {
  if (!guest.world_ended()) { world.quiesce(); }
  for (engine::UnitLife& life : *lives) { ++life.ended_scopes; }
}

void ShardedModel::State::end_of_model() noexcept {
  std::exception_ptr& mistake = guest.life().mistake;
  if (mistake || std::uncaught_exceptions() > uncaught) { return; }
  try {
    mistake = std::make_exception_ptr(ContractError{
        open_scopes > 0
            ? fmt::format("the model was destroyed while a scope of unit {} was open; end every "
                          "scope before its model",
                          names_of_open_units())
            : "the model was destroyed while it was being evaluated; end the Evaluation before its "
              "model"});
  } catch (...) { mistake = std::current_exception(); }
}

ShardedModel::ShardedModel(World& world, const ModelOptions& options)
    : state_{std::make_shared<State>(world, options)} {}

// Scopes and evaluations share the state.
ShardedModel::~ShardedModel() {
  if (state_.use_count() > 1) { state_->end_of_model(); }
}

ShardedModel::State& ShardedModel::live() const {
  state_->guest.require_world("a model");
  return *state_;
}

Unit ShardedModel::add_unit(std::string name, std::vector<ParameterSpec> parameters,
                            UnitOptions options) {
  return live().add_unit(std::move(name), std::move(parameters), options);
}

void ShardedModel::declare_order(const std::vector<Unit>& forward) {
  live().declare_order(forward);
}

void ShardedModel::materialize(const Initializer& initial) {
  live().materialize(initial);
}

void ShardedModel::optimize_with(const Optimizer& optimizer, const OptimizerOptions& options) {
  live().optimize_with(optimizer, options);
}

ForwardScope ShardedModel::forward(Unit unit) {
  live().open(engine::Phase::forward, unit);
  return ForwardScope{state_, unit};
}

BackwardScope ShardedModel::backward(Unit unit) {
  live().open(engine::Phase::backward, unit);
  return BackwardScope{state_, unit};
}

Evaluation ShardedModel::evaluate() {
  live().begin_evaluation();
  return Evaluation{state_};
}

void ShardedModel::set_learning_rate(float lr) {
  expects(live().optimizer != nullptr, "set_learning_rate: call optimize_with first");
  state_->optimizer->set_learning_rate(lr);
}

void ShardedModel::step(const double* loss) {
  live().step(loss);
}

const float* ShardedModel::loss_scale() const {
  if (live().optimizer == nullptr) { return nullptr; }
  state_->loss_scale_asked = true;
  return state_->optimizer->loss_scale();
}

StepReport ShardedModel::report() const {
  expects(live().optimizer != nullptr && state_->journal.step() > 0,
          "report: no step has been made");
  state_->world.compute_stream().wait();
  state_->check_if_stuck();
  return report_of(state_->journal.step(), state_->optimizer->last());
}

StepReport ShardedModel::previous_report() const {
  expects(live().optimizer != nullptr && state_->journal.step() > 1,
          "previous_report: two steps have not been made");
  state_->check_if_stuck();
  const engine::OptimizerStep::Outcome outcome = state_->optimizer->before_last();
  state_->world.compute_stream().rethrow();  // what ended the stream may have ended the wait
  return report_of(state_->journal.step() - 1, outcome);
}

std::int64_t ShardedModel::steps() const noexcept {
  return state_->journal.step();
}

void ShardedModel::export_state(StateTensor what, const State::Sink& sink) {
  live().rethrow_failure();
  expects(state_->parameters != nullptr, "export_state: call materialize first");
  expects(sink != nullptr, "export_state: the sink is empty");
  expects(!state_->evaluating, "export_state: the model is being evaluated: end the Evaluation");
  if (what == StateTensor::parameters) { return state_->export_parameters(sink); }
  state_->require_training("export_state of gradients");
  state_->export_gradients(sink);
}

void ShardedModel::export_masters(const State::PieceSink& sink) {
  live().rethrow_failure();
  expects(state_->parameters != nullptr, "export_masters: call materialize first");
  expects(sink != nullptr, "export_masters: the sink is empty");
  state_->require_training("export_masters");
  state_->export_masters(sink);
}

World& ShardedModel::world() {
  return live().world;
}

const ModelOptions& ShardedModel::options() const noexcept {
  return state_->options;
}

std::int64_t ShardedModel::parameter_elems() const {
  std::int64_t elems = 0;
  for (const engine::UnitState& unit : state_->units) { elems += unit.layout.parameter_elems(); }
  return elems;
}

ModelStateBytes ShardedModel::state_bytes() const {
  ModelStateBytes bytes;
  if (state_->parameters != nullptr) { bytes.parameters = state_->parameters->persistent_bytes(); }
  if (state_->gradients != nullptr) { bytes.gradients = state_->gradients->persistent_bytes(); }
  if (state_->masters != nullptr) { bytes.optimizer = state_->masters->persistent_bytes(); }
  if (state_->optimizer != nullptr) { bytes.optimizer += state_->optimizer->persistent_bytes(); }
  if (state_->host_weights != nullptr) {
    bytes.host =
        state_->host_weights->persistent_bytes() + state_->gradients->host()->persistent_bytes();
    if (state_->optimizer != nullptr) { bytes.host += state_->optimizer->host_bytes(); }
  }
  return bytes;
}

const UnitLayout& ShardedModel::layout(Unit unit) const {
  return state_->unit_at(unit, "layout").layout;
}

const std::string& ShardedModel::unit_name(Unit unit) const {
  return state_->unit_at(unit, "unit_name").name;
}

std::size_t ShardedModel::unit_count() const noexcept {
  return state_->units.size();
}

Unit ShardedModel::unit(std::size_t index) const {
  return state_->unit(index);
}

}  // namespace tessera

#include "tessera/engine/sharded_model.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/model/model.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

using engine::UseKind;

ShardedModel::ShardedModel(World& world, const ModelOptions& options)
    : model_{std::make_shared<engine::Model>(world, options)} {}

// Scopes and evaluations share the model.
ShardedModel::~ShardedModel() {
  if (model_.use_count() > 1) { model_->end_of_owner(); }
}

engine::Model& ShardedModel::live() const {
  model_->require_world("a model");
  return *model_;
}

std::size_t ShardedModel::index_of(Unit unit, const char* call) const {
  const engine::UnitPlans& plans = model_->plans();
  if (unit.model_ == model_->number() && unit.index() < plans.size()) { return unit.index(); }
  std::string known;
  for (const engine::UnitPlan& mine : plans) {
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", mine.name);
  }
  throw ContractError{
      fmt::format("{}: {}; pass what add_unit of this model returned, or unit() (it has {})", call,
                  unit == Unit{} ? "a default Unit{} is no unit" : "the unit is of another model",
                  known.empty() ? "none" : known)};
}

Unit ShardedModel::add_unit(std::string name, std::vector<ParameterSpec> parameters,
                            UnitOptions options) {
  return {live().add_unit(std::move(name), std::move(parameters), options), model_->number()};
}

void ShardedModel::declare_order(const std::vector<Unit>& forward) {
  std::vector<std::size_t> order;
  for (const Unit unit : forward) { order.push_back(index_of(unit, "declare_order")); }
  live().declare_order(order);
}

void ShardedModel::materialize(const Initializer& initial) {
  live().materialize(initial);
}

void ShardedModel::optimize_with(const Optimizer& optimizer, const OptimizerOptions& options) {
  live().optimize_with(optimizer, options);
}

ForwardScope ShardedModel::forward(Unit unit) {
  return {model_, unit, UseKind::forward, open(UseKind::forward, unit, {})};
}

BackwardScope ShardedModel::backward(Unit unit) {
  return {model_, unit, UseKind::backward, open(UseKind::backward, unit, {})};
}

ForwardScope ShardedModel::forward(Unit unit, int micro_batch) {
  return {model_, unit, UseKind::forward, open(UseKind::forward, unit, micro_batch)};
}

BackwardScope ShardedModel::backward(Unit unit, int micro_batch) {
  return {model_, unit, UseKind::backward, open(UseKind::backward, unit, micro_batch)};
}

ReadScope ShardedModel::read(Unit unit, int micro_batch) {
  return {model_, unit, UseKind::read, open(UseKind::read, unit, micro_batch)};
}

OpenScope ShardedModel::open_any(Unit unit, bool backward) {
  const UseKind kind = backward ? UseKind::backward : UseKind::forward;
  live().require_ready();
  model_->open_any(kind, index_of(unit, "open_any"));
  return {model_, unit, kind, Scope::kAny};
}

void ShardedModel::discard() {
  live().discard();
}

int ShardedModel::open(UseKind kind, Unit unit, std::optional<int> micro_batch) {
  live().require_ready();
  return model_->open(kind, index_of(unit, to_string(kind)), micro_batch);
}

bool ShardedModel::stays_in_place(Unit unit, StateTensor what) const {
  return live().stays_in_place(index_of(unit, "stays_in_place"), what);
}

Evaluation ShardedModel::evaluate() {
  live().begin_evaluation();
  return Evaluation{model_};
}

void ShardedModel::freeze(Unit unit, std::string_view parameter) {
  live().freeze(index_of(unit, "freeze"), parameter);
}

void ShardedModel::unfreeze(Unit unit, std::string_view parameter) {
  live().unfreeze(index_of(unit, "unfreeze"), parameter);
}

void ShardedModel::set_learning_rate(float lr) {
  live().trained("set_learning_rate").set_learning_rate(lr);
}

void ShardedModel::step(const double* loss, const LossCount& count) {
  live().step(loss, count);
}

const float* ShardedModel::loss_scale() const {
  engine::Step* const step = live().optimizer();
  return step == nullptr ? nullptr : step->tell_loss_scale();
}

StepReport ShardedModel::report() const {
  const engine::Step* const step = live().optimizer();
  expects(step != nullptr && step->made() > 0, "report: no step has been made; call it after step");
  StepReport report = model_->optimizer()->report();
  model_->optimizer()->check_if_stuck();
  return report;
}

StepReport ShardedModel::previous_report() const {
  const engine::Step* const step = live().optimizer();
  expects(step != nullptr && step->made() > 1,
          "previous_report: fewer than two steps have been made; call it after the second");
  model_->optimizer()->check_if_stuck();
  return model_->optimizer()->previous_report();
}

std::int64_t ShardedModel::steps() const noexcept {
  return model_->steps();
}

void ShardedModel::export_state(StateTensor what, const engine::StateSink& sink) {
  live().export_state(what, sink);
}

std::vector<std::vector<double>> ShardedModel::gradient_norms(Norm norm) {
  return live().gradient_norms(norm);
}

void ShardedModel::scale_gradient(Unit unit, std::string_view parameter, float factor) {
  live().scale_gradient(index_of(unit, "scale_gradient"), parameter, factor);
}

void ShardedModel::clear_gradient(Unit unit, std::string_view parameter) {
  live().clear_gradient(index_of(unit, "clear_gradient"), parameter);
}

void ShardedModel::export_masters(const engine::PieceSink& sink) {
  live().export_masters(sink);
}

World& ShardedModel::world() {
  return live().world();
}

const ModelOptions& ShardedModel::options() const noexcept {
  return model_->options();
}

bool ShardedModel::has(Unit unit) const {
  return model_->has(index_of(unit, "has"));
}
std::int64_t ShardedModel::parameter_elems() const {
  std::int64_t elems = 0;
  for (const engine::UnitPlan& plan : model_->plans()) { elems += plan.layout.whole_elems(); }
  return elems;
}

std::vector<WholeUnits> ShardedModel::whole_units() const {
  return model_->whole_units();
}

ModelStateBytes ShardedModel::state_bytes() const {
  return model_->state_bytes();
}

const UnitLayout& ShardedModel::layout(Unit unit) const {
  return model_->plans()[index_of(unit, "layout")].layout;
}

const std::string& ShardedModel::unit_name(Unit unit) const {
  return model_->plans()[index_of(unit, "unit_name")].name;
}

std::size_t ShardedModel::unit_count() const noexcept {
  return model_->plans().size();
}

Unit ShardedModel::unit(std::size_t index) const {
  if (index < unit_count()) { return {index, model_->number()}; }
  throw ContractError{
      fmt::format("unit: the model has {} units, and none at index {}", unit_count(), index)};
}

}  // namespace tessera

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void require_fp32(DType dtype) {
  if (dtype != DType::fp32) {
    throw ContractError{
        fmt::format("a tensor of {} is taken as float; take it as Values", to_string(dtype))};
  }
}

}  // namespace

void Lifetime::refuse() const {
  throw ContractError{fmt::format(
      "a {} tensor of unit '{}' is used after the scope that it was taken from has ended, when its "
      "memory may hold another unit; take it from an open scope",
      to_string(category_), *unit_)};
}

ConstTensor::operator const float*() const {
  require_fp32(view_.dtype);
  return static_cast<const float*>(data());
}

Tensor::operator float*() const {
  require_fp32(view_.dtype);
  return static_cast<float*>(data());
}

Scope::Scope(std::shared_ptr<ShardedModel::State> model, Unit unit) noexcept
    : model_{std::move(model)}, unit_{unit}, exceptions_{std::uncaught_exceptions()} {}

bool Scope::unwinding() const noexcept {
  return std::uncaught_exceptions() > exceptions_;
}

ConstTensor Scope::operator[](std::string_view name) const {
  return model_->parameter(unit_, name);
}

Stream Scope::stream() const {
  model_->guest.require_world("a scope");
  return model_->world.compute_stream();
}

ForwardScope::~ForwardScope() {
  model_->close_noexcept(engine::Phase::forward, unit_, unwinding());
}

void ForwardScope::watch(ConstView output) const {
  model_->guest.require_world("a scope");
  model_->watch(unit_, output);
}

BackwardScope::~BackwardScope() {
  model_->close_noexcept(engine::Phase::backward, unit_, unwinding());
}

Evaluation::~Evaluation() {
  model_->end_evaluation_noexcept();
}

void Evaluation::end_pass() {
  model_->guest.require_world("an Evaluation");
  model_->end_pass();
}

Tensor BackwardScope::grad(std::string_view name) const {
  return model_->gradient(unit_, name);
}

bool BackwardScope::has_grad(std::string_view name) const {
  return model_->has_gradient(unit_, name);
}

// ------------------------------------------------------------------------------------- access

engine::ParameterRef ShardedModel::State::find(Unit unit, std::string_view name) const {
  const engine::UnitState& state = units[unit.index()];
  const auto index = state.layout.find(name);
  if (!index) {
    std::string known;
    for (const ParameterSpec& spec : state.layout.specs()) { known += " " + spec.name; }
    throw ContractError{
        fmt::format("unit '{}' has no parameter '{}'; it has:{}", state.name, name, known)};
  }
  return state.alias_of[*index].value_or(engine::ParameterRef{unit.index(), *index});
}

Lifetime ShardedModel::State::lifetime(Unit unit, std::size_t owner, Category category) const {
  return {lives, (*lives)[unit.index()].ended_scopes, category, (*lives)[owner].name};
}

ConstTensor ShardedModel::State::parameter(Unit unit, std::string_view name) const {
  const auto [owner, index] = find(unit, name);
  const UnitLayout::Location location = *units[owner].layout.locate(index);
  const Shape& shape = (*lives)[owner].shapes[index];
  return {parameters->whole(owner, location.segment).slice(location.first, shape.elems()), shape,
          lifetime(unit, owner, parameters->category())};
}

bool ShardedModel::State::has_gradient(Unit unit, std::string_view name) const {
  const auto [owner, index] = find(unit, name);
  return units[owner].infos[index].trainable;
}

Tensor ShardedModel::State::gradient(Unit unit, std::string_view name) const {
  const auto [owner, index] = find(unit, name);
  const ParameterInfo& info = units[owner].infos[index];
  if (!info.trainable) {
    throw ContractError{
        fmt::format("'{}' is frozen and has no gradient; ask has_grad first", info.full_name())};
  }
  const UnitLayout::Location location = *units[owner].layout.locate(index);
  return {gradients->whole(owner, location.segment).slice(location.first, info.shape.elems()),
          (*lives)[owner].shapes[index], lifetime(unit, owner, gradients->category())};
}

}  // namespace tessera

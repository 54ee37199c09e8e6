#include <fmt/format.h>

#include <exception>
#include <utility>

#include "engine/model/model.hpp"
#include "tessera/base/error.hpp"
#include "tessera/engine/scope.hpp"

namespace tessera {

using engine::UseKind;

Scope::Scope(std::shared_ptr<engine::Model> model, Unit unit, UseKind kind,
             int micro_batch) noexcept
    : unit_{unit},
      micro_batch_{micro_batch},
      model_{std::move(model)},
      kind_{kind},
      exceptions_{std::uncaught_exceptions()} {}

Scope::Scope(Scope&& other) noexcept
    : unit_{other.unit_},
      micro_batch_{other.micro_batch_},
      model_{std::move(other.model_)},
      kind_{other.kind_},
      exceptions_{other.exceptions_} {}

Scope& Scope::operator=(Scope&& other) noexcept {
  if (this == &other) { return *this; }
  end();
  unit_ = other.unit_;
  micro_batch_ = other.micro_batch_;
  model_ = std::move(other.model_);
  kind_ = other.kind_;
  exceptions_ = other.exceptions_;
  return *this;
}

Scope::~Scope() {
  end();
}

void Scope::end() noexcept {
  const std::shared_ptr<engine::Model> model = std::move(model_);
  if (model == nullptr) { return; }
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  model->close(kind_, unit_.index(), micro_batch_, unwinding);
}

void Scope::close() {
  const std::shared_ptr<engine::Model> model = model_;
  (void)live();
  end();
  model->rethrow_failure();
}

engine::Model& Scope::live() const {
  if (model_ == nullptr) {
    throw ContractError{
        "a scope is used after it ended or was moved from; use it while it is open"};
  }
  model_->require_world("a scope");
  return *model_;
}

ConstTensor Scope::operator[](std::string_view name) const {
  return live().parameter(unit_.index(), name);
}

Stream Scope::stream() const {
  return live().world().compute_stream();
}

void ForwardScope::watch(ConstView output) const {
  live().watch(unit_.index(), micro_batch_, output);
}

Tensor OpenScope::grad(std::string_view name) const {
  return live().open_gradient(unit_.index(), name);
}

Tensor BackwardScope::grad(std::string_view name) const {
  return live().gradient(unit_.index(), name);
}

kernels::Write BackwardScope::write(std::string_view name) const {
  return live().write_of_gradient(unit_.index(), name);
}

bool BackwardScope::has_grad(std::string_view name) const {
  return live().has_gradient(unit_.index(), name);
}

Evaluation::Evaluation(std::shared_ptr<engine::Model> model) noexcept : model_{std::move(model)} {}

Evaluation::~Evaluation() {
  model_->end_evaluation();
}

void Evaluation::end_pass() {
  model_->require_world("an Evaluation");
  model_->end_pass();
}

}  // namespace tessera

#include "torch/gradient_stand_ins.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/error.hpp"
#include "torch/intercept.hpp"
#include "torch/passes.hpp"

namespace tessera::torch {

namespace {

constexpr std::string_view kViews[] = {"aten::detach", "aten::detach_",        "aten::alias",
                                       "aten::view",   "aten::_reshape_alias", "aten::reshape",
                                       "aten::flatten"};

bool is_stand_in(const Place& place) {
  return place.kind() != PlaceKind::parameter && !place.is_open();
}

// Returns the norm that an argument names: none for another one.
std::optional<Norm> norm_named(const c10::IValue& ord) {
  if (ord.isNone()) { return Norm::two; }
  if (!ord.isScalar()) { return std::nullopt; }
  const double p = ord.toScalar().toDouble();
  if (p == 2.0) { return Norm::two; }
  return p == std::numeric_limits<double>::infinity() ? std::optional{Norm::infinity}
                                                      : std::nullopt;
}

}  // namespace

/// A call of an operator whose first argument is a stand-in.
class GradientStandIns::Call {
 public:
  Call(Place& place, const c10::OperatorHandle& op, ::torch::jit::Stack& stack)
      : place_{place}, home_{place.home()}, op_{op}, stack_{stack} {}

  // Throws ContractError unless it was run; returns false for an operator that makes a view.
  bool run() {
    if (std::ranges::find(kViews, name()) != std::end(kViews)) { return false; }
    const bool gradient = place_.kind() == PlaceKind::gradient;
    if (name() == "aten::zero_" && gradient) {
      home_.zero_gradient();
      return returns(argument(0).toTensor());
    }
    if (name() == "aten::abs" && gradient && is_whole() && lacks("out")) {
      return returns(home_.magnitude());
    }
    require_between();
    if (const std::optional<Norm> norm = asked_norm()) { return returns_norm(*norm); }
    if (const std::optional<double> factor = asked_factor()) {
      if (home_.gradient_waits()) { stand_ins().multiply(home_, static_cast<float>(*factor)); }
      return returns(argument(0).toTensor());
    }
    refuse("of which each rank keeps a part");
  }

 private:
  [[nodiscard]] const std::string& name() const { return op_.schema().name(); }
  [[nodiscard]] std::size_t count() const { return op_.schema().arguments().size(); }
  [[nodiscard]] const c10::IValue& argument(std::size_t i) const {
    return stack_[stack_.size() - count() + i];
  }
  [[nodiscard]] GradientStandIns& stand_ins() const { return home_.passes().stand_ins(); }

  // The first argument is the whole stand-in.
  [[nodiscard]] bool is_whole() const {
    const c10::IValue& self = argument(0);
    return self.isTensor() && Place::of(self.toTensor()) == &place_ &&
           self.toTensor().numel() == home_.tensor().numel();
  }
  // Whether the operator has no argument of this name, or leaves it out.
  [[nodiscard]] bool lacks(std::string_view wanted) const {
    const auto& arguments = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() != wanted || argument(i).isNone()) { continue; }
      if (!argument(i).isList() || !argument(i).toListRef().empty()) { return false; }
    }
    return true;
  }

  // Whether the operator has an argument of this name that is true.
  [[nodiscard]] bool sets(std::string_view wanted) const {
    const auto& arguments = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == wanted && argument(i).isBool() && argument(i).toBool()) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::optional<Norm> asked_norm() const {
    if (!is_whole() || !lacks("dim") || !lacks("dtype") || !lacks("out") || sets("keepdim")) {
      return std::nullopt;
    }
    if (place_.kind() == PlaceKind::magnitude) {
      const bool largest = name() == "aten::amax" || (name() == "aten::max" && count() == 1);
      return largest ? std::optional{Norm::infinity} : std::nullopt;
    }
    if (name() != "aten::norm" && name() != "aten::linalg_vector_norm") { return std::nullopt; }
    return norm_named(argument(1));
  }

  [[nodiscard]] std::optional<double> asked_factor() const {
    const bool divides = name() == "aten::div_";
    if (!(divides || name() == "aten::mul_") || !is_whole() || count() != 2 ||
        place_.kind() != PlaceKind::gradient) {
      return std::nullopt;
    }
    const c10::IValue& by = argument(1);
    if (by.isTensor() && (by.toTensor().numel() != 1 || Place::of(by.toTensor()) != nullptr)) {
      return std::nullopt;
    }
    const double value =
        by.isTensor() ? stand_ins().value_of(by.toTensor()) : by.toScalar().to<double>();
    return divides ? 1.0 / value : value;
  }

  bool returns(at::Tensor result) {
    ::torch::jit::drop(stack_, count());
    ::torch::jit::push(stack_, std::move(result));
    return true;
  }
  // A tensor of one fp32 on the gradient's device.
  bool returns_norm(Norm norm) {
    const double value = home_.gradient_waits() ? stand_ins().norm_of(home_, norm) : 0.0;
    const NoInterception own;
    return returns(
        at::full({}, value, at::TensorOptions{}.dtype(at::kFloat).device(home_.tensor().device())));
  }

  // What this step's passes have not reached counts as zeros: the step before has used it.
  void require_between() const {
    if (!stand_ins().any_waits()) { refuse("which the last step has used, or which was dropped"); }
    if (!home_.passes().between()) { refuse("within a pass"); }
  }

  [[noreturn]] void refuse(const char* why) const {
    throw ContractError{
        name() + " uses the gradient of \"" + home_.name() + "\", " + why +
        ". Between backward and step there are its norms 2 and infinity (clip_grad_norm_), its "
        "multiplication by one number, and zero_grad. Else set clip_norm in optimize_with, call "
        "ShardedModule::step in place of torch::optim, or read what export_gradients() returns"};
  }

  Place& place_;
  ParameterHome& home_;
  const c10::OperatorHandle& op_;
  ::torch::jit::Stack& stack_;
};

bool GradientStandIns::run(std::span<const Use> uses, const c10::OperatorHandle& op,
                           ::torch::jit::Stack& stack) {
  const auto found =
      std::ranges::find_if(uses, [](const Use& use) { return is_stand_in(*use.place); });
  return found != uses.end() && Call{*found->place, op, stack}.run();
}

double GradientStandIns::norm_of(const ParameterHome& home, Norm norm) {
  home.passes().close_everything();
  clear_dropped();
  auto found = norms_.find(norm);
  if (found == norms_.end()) { found = norms_.emplace(norm, model_.gradient_norms(norm)).first; }
  const auto place = model_.layout(model_.unit(home.unit())).find(home.in_unit());
  return found->second[home.unit()][place.value()];
}

void GradientStandIns::multiply(const ParameterHome& home, float factor) {
  home.passes().close_everything();
  clear_dropped();
  const Unit unit = model_.unit(home.unit());
  model_.scale_gradient(unit, home.in_unit(), factor);
  const std::size_t place = model_.layout(unit).find(home.in_unit()).value();
  for (auto& [norm, by_unit] : norms_) { by_unit[home.unit()][place] *= std::fabs(factor); }
}

// One number often multiplies all gradients: a device is asked for it once.
double GradientStandIns::value_of(const at::Tensor& number) {
  const NoInterception own;
  if (number.is_inference()) { return number.item<double>(); }
  if (!number_.defined() || !number_.is_same(number) || version_ != number._version()) {
    value_ = number.item<double>();
    number_ = number;
    version_ = number._version();
  }
  return value_;
}

bool GradientStandIns::any_waits() const {
  return std::ranges::any_of(homes_,
                             [](const ParameterHome& home) { return home.gradient_waits(); });
}

void GradientStandIns::require_own() const {
  for (const ParameterHome& home : homes_) {
    if (!home.gradient_is_foreign()) { continue; }
    throw ContractError{
        "the gradient of \"" + home.name() +
        "\" was assigned (mutable_grad), and the step would not use it; multiply it in place "
        "(grad().mul_(number)), or drop it by zero_grad"};
  }
}

bool GradientStandIns::all_are_dropped() const {
  bool any = false;
  for (const ParameterHome& home : homes_) {
    if (!home.gradient_waits()) { continue; }
    if (!home.gradient_is_dropped()) { return false; }
    any = true;
  }
  return any;
}

void GradientStandIns::clear_dropped() {
  for (ParameterHome& home : homes_) {
    if (!home.gradient_is_dropped()) { continue; }
    home.passes().close_everything();
    model_.clear_gradient(model_.unit(home.unit()), home.in_unit());
    home.gradient_is_cleared();
    norms_.clear();
  }
}

}  // namespace tessera::torch

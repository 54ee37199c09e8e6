#include "tessera/optim/optimizer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void check(bool ok, std::string_view name, float value, std::string_view rule) {
  if (ok && std::isfinite(value)) { return; }
  throw ContractError(
      fmt::format("optimizer: {} must be a finite number {}, but is {}", name, rule, value));
}

void check_not_negative(std::string_view name, float value) {
  check(value >= 0.0F, name, value, ">= 0");
}

// A moment that keeps everything (1) would never see a gradient and divide by 1 - 1^t = 0.
void check_fraction(std::string_view name, float value) {
  check(value >= 0.0F && value < 1.0F, name, value, "in [0, 1)");
}

void check_values(const AdamW& adamw) {
  check_not_negative("lr", adamw.lr);
  check_fraction("beta1", adamw.beta1);
  check_fraction("beta2", adamw.beta2);
  check(adamw.eps > 0.0F, "eps", adamw.eps, "> 0");
  check_not_negative("weight_decay", adamw.weight_decay);
}

void check_values(const SGD& sgd) {
  check_not_negative("lr", sgd.lr);
  check_fraction("momentum", sgd.momentum);
  check_not_negative("weight_decay", sgd.weight_decay);
}

}  // namespace

int state_count(const Optimizer& optimizer) noexcept {
  if (const auto* sgd = std::get_if<SGD>(&optimizer)) { return sgd->momentum == 0.0F ? 0 : 1; }
  return 2;
}

void validate(const Optimizer& optimizer) {
  std::visit([](const auto& values) { check_values(values); }, optimizer);
}

bool decays_by_rank(std::string_view /*name*/, const Shape& shape) noexcept {
  return shape.rank() >= 2;
}

}  // namespace tessera

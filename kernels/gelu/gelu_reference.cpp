#include <cmath>
#include <numbers>

#include "kernels/gelu/gelu.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

const double kGeluScale = std::sqrt(2.0 / std::numbers::pi);
constexpr double kGeluCubic = 0.044715;

}  // namespace

double gelu(double x, GELU form) {
  if (form == GELU::exact) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
  return 0.5 * x * (1.0 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x)));
}

double gelu_slope(double x, GELU form) {
  if (form == GELU::exact) {
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
  }
  const double tanh = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const double inner = kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
  return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner;
}

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream, GELU form) {
  for (std::int64_t i = 0; i < elems; ++i) {
    set_element(y, i, static_cast<float>(gelu(element(x, i), form)));
  }
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream,
                   GELU form) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const double slope = gelu_slope(element(x, i), form);
    set_element(dx, i, static_cast<float>(static_cast<double>(element(dy, i)) * slope));
  }
}

}  // namespace tessera::kernels::reference

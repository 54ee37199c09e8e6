#include <cmath>
#include <numbers>

#include "kernels/gelu/gelu.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

const double kScale = std::sqrt(2.0 / std::numbers::pi);
constexpr double kCubic = 0.044715;

}  // namespace

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const double v = element(x, i);
    set_element(y, i,
                static_cast<float>(0.5 * v * (1.0 + std::tanh(kScale * (v + kCubic * v * v * v)))));
  }
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const double v = element(x, i);
    const double tanh = std::tanh(kScale * (v + kCubic * v * v * v));
    const double inner = kScale * (1.0 + 3.0 * kCubic * v * v);
    const double slope = 0.5 * (1.0 + tanh) + 0.5 * v * (1.0 - tanh * tanh) * inner;
    set_element(dx, i, static_cast<float>(static_cast<double>(element(dy, i)) * slope));
  }
}

}  // namespace tessera::kernels::reference

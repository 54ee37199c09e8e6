#include <cmath>

#include "kernels/gelu/gelu.hpp"
#include "kernels/glu/glu.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

double gate_value(double gate, Gate function) {
  if (function == Gate::gelu_tanh) { return gelu(gate, GELU::tanh); }
  return gate / (1.0 + std::exp(-gate));
}

double gate_slope(double gate, Gate function) {
  if (function == Gate::gelu_tanh) { return gelu_slope(gate, GELU::tanh); }
  const double logistic = 1.0 / (1.0 + std::exp(-gate));
  return logistic * (1.0 + gate * (1.0 - logistic));
}

}  // namespace

void glu_forward(const GLUForward& args, Stream) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double gate = element(args.gate, r * row + c);
      const double up = element(args.up, r * row + c);
      set_element(args.y, r * args.columns + c,
                  static_cast<float>(gate_value(gate, args.function) * up));
    }
  }
}

void glu_backward(const GLUBackward& args, Stream) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double gate = element(args.gate, r * row + c);
      const double up = element(args.up, r * row + c);
      const double dy = element(args.dy, r * args.columns + c);
      set_element(args.dgate, r * row + c,
                  static_cast<float>(dy * up * gate_slope(gate, args.function)));
      set_element(args.dup, r * row + c, static_cast<float>(dy * gate_value(gate, args.function)));
    }
  }
}

}  // namespace tessera::kernels::reference

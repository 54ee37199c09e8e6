#include <cmath>

#include "kernels/support/typed.hpp"
#include "kernels/swiglu/swiglu.hpp"

namespace tessera::kernels::reference {

void swiglu_forward(const SwiGLUForward& args, Stream) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double gate = element(args.gate, r * row + c);
      const double up = element(args.up, r * row + c);
      set_element(args.y, r * args.columns + c,
                  static_cast<float>(gate / (1.0 + std::exp(-gate)) * up));
    }
  }
}

void swiglu_backward(const SwiGLUBackward& args, Stream) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double gate = element(args.gate, r * row + c);
      const double up = element(args.up, r * row + c);
      const double dy = element(args.dy, r * args.columns + c);
      const double logistic = 1.0 / (1.0 + std::exp(-gate));
      const double slope = logistic * (1.0 + gate * (1.0 - logistic));
      set_element(args.dgate, r * row + c, static_cast<float>(dy * up * slope));
      set_element(args.dup, r * row + c, static_cast<float>(dy * gate * logistic));
    }
  }
}

}  // namespace tessera::kernels::reference

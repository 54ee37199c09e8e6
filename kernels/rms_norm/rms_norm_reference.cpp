#include <cmath>

#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
void rms_norm_forward(const RMSNormForward& args, Stream) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const auto x = [&](std::int64_t c) {
      return static_cast<double>(element(args.x, r * args.columns + c));
    };
    double square = 0.0;
    for (std::int64_t c = 0; c < args.columns; ++c) {
      square += x(c) * x(c) / static_cast<double>(args.columns);
    }
    const double inverse_rms = 1.0 / std::sqrt(square + static_cast<double>(args.eps));
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double weight = element(args.weight, c);
      set_element(args.y, r * args.columns + c, static_cast<float>(x(c) * inverse_rms * weight));
    }
    args.inverse_rms[r] = static_cast<float>(inverse_rms);
  }
}

void rms_norm_backward(const RMSNormBackward& args, Stream) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const double inverse_rms = args.inverse_rms[r];
    const auto normal = [&](std::int64_t c) {
      return static_cast<double>(element(args.x, r * args.columns + c)) * inverse_rms;
    };
    const auto dnormal = [&](std::int64_t c) {
      return static_cast<double>(element(args.dy, r * args.columns + c)) *
             static_cast<double>(element(args.weight, c));
    };
    double scaled = 0.0;  // mean of dnormal * normal: subtracted because the scale depends on x
    for (std::int64_t c = 0; c < args.columns; ++c) {
      scaled += dnormal(c) * normal(c) / static_cast<double>(args.columns);
    }
    for (std::int64_t c = 0; c < args.columns; ++c) {
      add_element(args.dx, r * args.columns + c, inverse_rms * (dnormal(c) - normal(c) * scaled));
    }
  }
  if (!args.dweight) { return; }
  for (std::int64_t c = 0; c < args.columns; ++c) {
    double dweight = 0.0;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      dweight += static_cast<double>(element(args.dy, r * args.columns + c)) *
                 static_cast<double>(element(args.x, r * args.columns + c)) *
                 static_cast<double>(args.inverse_rms[r]);
    }
    add_element(args.dweight, c, dweight);
  }
}

}  // namespace tessera::kernels::reference

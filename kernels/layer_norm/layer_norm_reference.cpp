#include <cmath>

#include "kernels/layer_norm/layer_norm.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

void write_element(Values to, std::int64_t i, Write how, double value) {
  how == Write::add ? add_element(to, i, value) : set_element(to, i, static_cast<float>(value));
}

}  // namespace

void layer_norm_forward(const LayerNormForward& args, Stream) {
  const auto n = static_cast<double>(args.columns);
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const auto x = [&](std::int64_t c) { return element(args.x, r * args.columns + c); };
    double mean = 0.0;
    for (std::int64_t c = 0; c < args.columns; ++c) { mean += static_cast<double>(x(c)) / n; }
    double variance = 0.0;
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double centred = static_cast<double>(x(c)) - mean;
      variance += centred * centred / n;
    }
    const double inverse_std = 1.0 / std::sqrt(variance + static_cast<double>(kLayerNormEps));
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double normal = (static_cast<double>(x(c)) - mean) * inverse_std;
      set_element(args.y, r * args.columns + c,
                  static_cast<float>(normal * static_cast<double>(element(args.weight, c)) +
                                     static_cast<double>(element(args.bias, c))));
    }
    args.mean[r] = static_cast<float>(mean);
    args.inverse_std[r] = static_cast<float>(inverse_std);
  }
}

void layer_norm_backward(const LayerNormBackward& args, Stream) {
  const auto n = static_cast<double>(args.columns);
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const double inverse_std = args.inverse_std[r];
    const auto normal = [&](std::int64_t c) {
      return (static_cast<double>(element(args.x, r * args.columns + c)) -
              static_cast<double>(args.mean[r])) *
             inverse_std;
    };
    const auto dnormal = [&](std::int64_t c) {
      return static_cast<double>(element(args.dy, r * args.columns + c)) *
             static_cast<double>(element(args.weight, c));
    };
    double mean = 0.0;    // of dnormal: subtracted because the mean depends on x
    double scaled = 0.0;  // of dnormal * normal: subtracted because the variance depends on x
    for (std::int64_t c = 0; c < args.columns; ++c) {
      mean += dnormal(c) / n;
      scaled += dnormal(c) * normal(c) / n;
    }
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double dx = inverse_std * (dnormal(c) - mean - normal(c) * scaled);
      add_element(args.dx, r * args.columns + c, dx);
    }
  }
  for (std::int64_t c = 0; c < args.columns; ++c) {
    double dweight = 0.0;
    double dbias = 0.0;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const double dy = element(args.dy, r * args.columns + c);
      const double centred = static_cast<double>(element(args.x, r * args.columns + c)) -
                             static_cast<double>(args.mean[r]);
      dweight += dy * centred * static_cast<double>(args.inverse_std[r]);
      dbias += dy;
    }
    if (args.dweight) { write_element(args.dweight, c, args.dweight_write, dweight); }
    if (args.dbias) { write_element(args.dbias, c, args.dbias_write, dbias); }
  }
}

}  // namespace tessera::kernels::reference

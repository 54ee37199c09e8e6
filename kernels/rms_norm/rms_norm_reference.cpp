#include <cmath>

#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/support/row_groups.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

/// Where row `r` begins in an array of `args` with this member for its groups.
std::int64_t begin_of(const auto& args, std::int64_t group_elems, std::int64_t r) {
  return GroupedRow::of(r, args.group)
      .begin(group_elems_of(group_elems, args.group, args.columns), args.columns);
}

}  // namespace

void rms_norm_forward(const RMSNormForward& args, Stream) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const std::int64_t x_row = begin_of(args, args.x_group_elems, r);
    const std::int64_t y_row = begin_of(args, args.y_group_elems, r);
    const auto x = [&](std::int64_t c) { return static_cast<double>(element(args.x, x_row + c)); };
    double square = 0.0;
    for (std::int64_t c = 0; c < args.columns; ++c) {
      square += x(c) * x(c) / static_cast<double>(args.columns);
    }
    const double inverse_rms = 1.0 / std::sqrt(square + static_cast<double>(args.eps));
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double weight = element(args.weight, c);
      set_element(args.y, y_row + c, static_cast<float>(x(c) * inverse_rms * weight));
    }
    args.inverse_rms[r] = static_cast<float>(inverse_rms);
  }
}

void rms_norm_backward(const RMSNormBackward& args, Stream) {
  const auto x = [&](std::int64_t r, std::int64_t c) {
    return static_cast<double>(element(args.x, begin_of(args, args.x_group_elems, r) + c));
  };
  const auto dy = [&](std::int64_t r, std::int64_t c) {
    return static_cast<double>(element(args.dy, begin_of(args, args.dy_group_elems, r) + c));
  };
  if (args.dweight) {  // first: dx may replace dy
    for (std::int64_t c = 0; c < args.columns; ++c) {
      double dweight = 0.0;
      for (std::int64_t r = 0; r < args.rows; ++r) {
        dweight += dy(r, c) * x(r, c) * static_cast<double>(args.inverse_rms[r]);
      }
      add_element(args.dweight, c, dweight);
    }
  }
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const double inverse_rms = args.inverse_rms[r];
    const auto normal = [&](std::int64_t c) { return x(r, c) * inverse_rms; };
    const auto dnormal = [&](std::int64_t c) {
      return dy(r, c) * static_cast<double>(element(args.weight, c));
    };
    double scaled = 0.0;  // mean of dnormal * normal: subtracted because the scale depends on x
    for (std::int64_t c = 0; c < args.columns; ++c) {
      scaled += dnormal(c) * normal(c) / static_cast<double>(args.columns);
    }
    for (std::int64_t c = 0; c < args.columns; ++c) {
      const double dx = inverse_rms * (dnormal(c) - normal(c) * scaled);
      const std::int64_t at = begin_of(args, args.dx_group_elems, r) + c;
      if (args.dx_write == Write::overwrite) {
        set_element(args.dx, at, static_cast<float>(dx));
      } else {
        add_element(args.dx, at, dx);
      }
    }
  }
}

}  // namespace tessera::kernels::reference

#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/support/column_sum.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class T, class Weight>
void forward(const RMSNormForward& args, const device::Chunk& rows) {
  const Weight* weight = args.weight.as<Weight>();
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const T* x = args.x.as<T>() + r * args.columns;
    T* y = args.y.as<T>() + r * args.columns;
    Vec sum{};
    for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
      const Vec value = lanes.read(x + c);  // 0 beyond the end
      sum += value * value;
    });
    const double square = sum_of(sum) / static_cast<double>(args.columns);
    const auto inverse_rms =
        static_cast<float>(1.0 / std::sqrt(square + static_cast<double>(args.eps)));
    for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
      lanes.write(y + c, lanes.read(x + c) * inverse_rms * lanes.read(weight + c));
    });
    args.inverse_rms[r] = inverse_rms;
  }
}

template <class T, class Weight>
void backward_row(const RMSNormBackward& args, std::int64_t r) {
  const T* x = args.x.as<T>() + r * args.columns;
  const T* dy = args.dy.as<T>() + r * args.columns;
  T* dx = args.dx.as<T>() + r * args.columns;
  const Weight* weight = args.weight.as<Weight>();
  const float inverse_rms = args.inverse_rms[r];

  Vec scaled{};  // of dnormal * normal: subtracted because the scale depends on x
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(weight + c);  // 0 beyond the end
    scaled += dnormal * (lanes.read(x + c) * inverse_rms);
  });
  const auto mean = static_cast<float>(sum_of(scaled) / static_cast<double>(args.columns));
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(weight + c);
    const Vec normal = lanes.read(x + c) * inverse_rms;
    lanes.write(dx + c, lanes.read(dx + c) + inverse_rms * (dnormal - normal * mean));
  });
}

/// Adds all rows to the gradients of some columns, block of rows by block of rows.
template <class T, class Gradient>
void backward_weight(const RMSNormBackward& args, const device::Chunk& columns) {
  for (std::int64_t first = 0; first < args.rows; first += kRowBlock) {
    const auto at = [&args, first, left = columns.first](std::int64_t r, std::int64_t c) {
      return (first + r) * args.columns + left + c;
    };
    add_column_sums(args.dweight.as<Gradient>() + columns.first,
                    std::min(kRowBlock, args.rows - first), columns.size(),
                    [&](std::int64_t r, std::int64_t c, auto lanes) __attribute__((always_inline)) {
                      const Vec x = lanes.read(args.x.as<T>() + at(r, c));
                      return lanes.read(args.dy.as<T>() + at(r, c)) *
                             (x * args.inverse_rms[first + r]);
                    });
  }
}

}  // namespace

void rms_norm_forward(const RMSNormForward& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_types(args.x.dtype, args.weight.dtype, [&]<class T, class Weight>(Types<T, Weight>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) { forward<T, Weight>(args, rows); });
    });
  });
}

void rms_norm_backward(const RMSNormBackward& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_types(args.x.dtype, args.weight.dtype, [&]<class T, class Weight>(Types<T, Weight>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) {
                             for (std::int64_t r = rows.first; r < rows.last; ++r) {
                               backward_row<T, Weight>(args, r);
                             }
                           });
    });
    if (!args.dweight) { return; }
    with_types(args.x.dtype, args.dweight.dtype, [&]<class T, class Gradient>(Types<T, Gradient>) {
      device::parallel_for(
          stream, args.columns, column_grain(args.rows),
          [&](const device::Chunk& columns) { backward_weight<T, Gradient>(args, columns); });
    });
  });
}

}  // namespace tessera::kernels::cpu

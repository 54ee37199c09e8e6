#include <algorithm>
#include <array>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/support/column_sum.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/row_groups.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class T, class Weight>
void forward(const RMSNormForward& args, const device::Chunk& rows) {
  const Weight* weight = args.weight.as<Weight>();
  const std::int64_t x_groups = group_elems_of(args.x_group_elems, args.group, args.columns);
  const std::int64_t y_groups = group_elems_of(args.y_group_elems, args.group, args.columns);
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const GroupedRow row = GroupedRow::of(r, args.group);
    const T* x = args.x.as<T>() + row.begin(x_groups, args.columns);
    T* y = args.y.as<T>() + row.begin(y_groups, args.columns);
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

/// Where the rows of x, dy and dx begin.
struct BackwardRow {
  std::int64_t x;
  std::int64_t dy;
  std::int64_t dx;

  static BackwardRow of(const RMSNormBackward& args, std::int64_t r) {
    const GroupedRow row = GroupedRow::of(r, args.group);
    const auto begin = [&](std::int64_t group_elems) {
      return row.begin(group_elems_of(group_elems, args.group, args.columns), args.columns);
    };
    return {begin(args.x_group_elems), begin(args.dy_group_elems), begin(args.dx_group_elems)};
  }
};

template <class T, class Weight>
void backward_row(const RMSNormBackward& args, std::int64_t r) {
  const BackwardRow row = BackwardRow::of(args, r);
  const T* x = args.x.as<T>() + row.x;
  const T* dy = args.dy.as<T>() + row.dy;
  T* dx = args.dx.as<T>() + row.dx;
  const Weight* weight = args.weight.as<Weight>();
  const float inverse_rms = args.inverse_rms[r];

  Vec scaled{};  // of dnormal * normal: subtracted because the scale depends on x
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(weight + c);  // 0 beyond the end
    scaled += dnormal * (lanes.read(x + c) * inverse_rms);
  });
  const auto mean = static_cast<float>(sum_of(scaled) / static_cast<double>(args.columns));
  const auto gradient = [&](std::int64_t c, auto lanes) __attribute__((always_inline)) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(weight + c);
    const Vec normal = lanes.read(x + c) * inverse_rms;
    return inverse_rms * (dnormal - normal * mean);
  };
  if (args.dx_write == Write::overwrite) {
    return for_lanes(args.columns,
                     [&](std::int64_t c, auto lanes) { lanes.write(dx + c, gradient(c, lanes)); });
  }
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    lanes.write(dx + c, lanes.read(dx + c) + gradient(c, lanes));
  });
}

/// Adds all rows to the gradients of some columns, block of rows by block of rows.
template <class T, class Gradient>
void backward_weight(const RMSNormBackward& args, const device::Chunk& columns) {
  for (std::int64_t first = 0; first < args.rows; first += kRowBlock) {
    const std::int64_t rows = std::min(kRowBlock, args.rows - first);
    std::array<BackwardRow, kRowBlock> at;
    for (std::int64_t r = 0; r < rows; ++r) {
      at[static_cast<std::size_t>(r)] = BackwardRow::of(args, first + r);
    }
    const T* const xs = args.x.as<T>() + columns.first;
    const T* const dys = args.dy.as<T>() + columns.first;
    add_column_sums(args.dweight.as<Gradient>() + columns.first, rows, columns.size(),
                    [&](std::int64_t r, std::int64_t c, auto lanes) __attribute__((always_inline)) {
                      const BackwardRow& row = at[static_cast<std::size_t>(r)];
                      const Vec x = lanes.read(xs + row.x + c);
                      return lanes.read(dys + row.dy + c) * (x * args.inverse_rms[first + r]);
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
    if (args.dweight) {  // first: dx may replace dy
      const DType gradient = args.dweight.dtype;
      with_types(args.x.dtype, gradient, [&]<class T, class Gradient>(Types<T, Gradient>) {
        device::parallel_for(
            stream, args.columns, column_grain(args.rows),
            [&](const device::Chunk& columns) { backward_weight<T, Gradient>(args, columns); });
      });
    }
    with_types(args.x.dtype, args.weight.dtype, [&]<class T, class Weight>(Types<T, Weight>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) {
                             for (std::int64_t r = rows.first; r < rows.last; ++r) {
                               backward_row<T, Weight>(args, r);
                             }
                           });
    });
  });
}

}  // namespace tessera::kernels::cpu

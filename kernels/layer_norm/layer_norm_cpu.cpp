#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/layer_norm/layer_norm.hpp"
#include "kernels/support/column_sum.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class T>
float mean_of(const T* x, std::int64_t columns) {
  Vec sum{};
  for_lanes(columns, [&](std::int64_t c, auto lanes) { sum += lanes.read(x + c); });
  return static_cast<float>(sum_of(sum) / static_cast<double>(columns));
}

// A second pass over a row that is in the cache: no cancellation, unlike E[x^2] - E[x]^2.
template <class T>
double variance_of(const T* x, float mean, std::int64_t columns) {
  Vec sum{};
  for_lanes(columns, [&](std::int64_t c, auto lanes) {
    const Vec centred = lanes.mask(lanes.read(x + c) - mean, 0.0F);
    sum += centred * centred;
  });
  return sum_of(sum) / static_cast<double>(columns);
}

template <class T, class Weight>
void forward(const LayerNormForward& args, const device::Chunk& rows) {
  const Weight* weight = args.weight.as<Weight>();
  const Weight* bias = args.bias.as<Weight>();
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const T* x = args.x.as<T>() + r * args.columns;
    T* y = args.y.as<T>() + r * args.columns;
    const float mean = mean_of(x, args.columns);
    const double variance = variance_of(x, mean, args.columns);
    const auto inverse_std =
        static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(kLayerNormEps)));
    for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
      const Vec normal = (lanes.read(x + c) - mean) * inverse_std;
      lanes.write(y + c, normal * lanes.read(weight + c) + lanes.read(bias + c));
    });
    args.mean[r] = mean;
    args.inverse_std[r] = inverse_std;
  }
}

template <class T, class Weight>
void backward_row(const LayerNormBackward& args, std::int64_t r) {
  const T* x = args.x.as<T>() + r * args.columns;
  const T* dy = args.dy.as<T>() + r * args.columns;
  T* dx = args.dx.as<T>() + r * args.columns;
  const Weight* weight = args.weight.as<Weight>();
  const float mean = args.mean[r];
  const float inverse_std = args.inverse_std[r];

  Vec sum{};     // of dnormal: subtracted because the mean depends on x
  Vec scaled{};  // of dnormal * normal: subtracted because the variance depends on x
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(weight + c);  // 0 beyond the end
    sum += dnormal;
    scaled += dnormal * ((lanes.read(x + c) - mean) * inverse_std);
  });
  const auto columns = static_cast<double>(args.columns);
  const auto sum_mean = static_cast<float>(sum_of(sum) / columns);
  const auto scaled_mean = static_cast<float>(sum_of(scaled) / columns);
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(weight + c);
    const Vec normal = (lanes.read(x + c) - mean) * inverse_std;
    lanes.write(dx + c,
                lanes.read(dx + c) + inverse_std * ((dnormal - sum_mean) - normal * scaled_mean));
  });
}

/// Adds `rows` rows from `first` on to the gradients of some columns.
template <class T, class Gradient>
void backward_parameters(const LayerNormBackward& args, std::int64_t first, std::int64_t rows,
                         const device::Chunk& columns) {
  const auto at = [&args, first, left = columns.first](std::int64_t r, std::int64_t c) {
    return (first + r) * args.columns + left + c;
  };
  const T* x = args.x.as<T>();
  const T* dy = args.dy.as<T>();
  if (args.dweight) {
    add_column_sums(args.dweight.as<Gradient>() + columns.first, rows, columns.size(),
                    [&](std::int64_t r, std::int64_t c, auto lanes) __attribute__((always_inline)) {
                      const Vec centred = lanes.read(x + at(r, c)) - args.mean[first + r];
                      return lanes.read(dy + at(r, c)) * (centred * args.inverse_std[first + r]);
                    });
  }
  if (args.dbias) {
    add_column_sums(args.dbias.as<Gradient>() + columns.first, rows, columns.size(),
                    [&](std::int64_t r, std::int64_t c, auto lanes)
                        __attribute__((always_inline)) { return lanes.read(dy + at(r, c)); });
  }
}

/// Calls body(first, rows) for blocks of rows, in order.
template <class Body>
void for_row_blocks(const LayerNormBackward& args, Body body) {
  for (std::int64_t first = 0; first < args.rows; first += kRowBlock) {
    body(first, std::min(kRowBlock, args.rows - first));
  }
}

/// Adds columns of `rows` rows from `first` on, in the dtypes of `args`.
void add_parameters(const LayerNormBackward& args, std::int64_t first, std::int64_t rows,
                    const device::Chunk& columns) {
  const DType gradient = args.dweight ? args.dweight.dtype : args.dbias.dtype;
  with_types(args.x.dtype, gradient, [&]<class T, class Gradient>(Types<T, Gradient>) {
    backward_parameters<T, Gradient>(args, first, rows, columns);
  });
}

/// Computes rows [first, last), in the dtypes of `args`.
void backward_rows(const LayerNormBackward& args, std::int64_t first, std::int64_t last) {
  with_types(args.x.dtype, args.weight.dtype, [&]<class T, class Weight>(Types<T, Weight>) {
    for (std::int64_t r = first; r < last; ++r) { backward_row<T, Weight>(args, r); }
  });
}

void clear_parameters(const LayerNormBackward& args) {
  clear_for(args.dweight_write, args.dweight, args.columns);
  clear_for(args.dbias_write, args.dbias, args.columns);
}

// A block of rows is still in the cache when its column sums are formed.
void backward_on_one_thread(const LayerNormBackward& args) {
  for_row_blocks(args, [&](std::int64_t first, std::int64_t rows) {
    backward_rows(args, first, first + rows);
    add_parameters(args, first, rows, {0, args.columns, 0});
  });
}

// Rows first, then columns, so that each sum has the same order as on one thread.
void backward_on_threads(const LayerNormBackward& args, Stream stream) {
  device::parallel_for(stream, args.rows, row_grain(args.columns), [&](const device::Chunk& rows) {
    backward_rows(args, rows.first, rows.last);
  });
  device::parallel_for(stream, args.columns, column_grain(args.rows),
                       [&](const device::Chunk& columns) {
                         for_row_blocks(args, [&](std::int64_t first, std::int64_t rows) {
                           add_parameters(args, first, rows, columns);
                         });
                       });
}

}  // namespace

void layer_norm_forward(const LayerNormForward& args, Stream stream) {
  expects(args.x.dtype == args.y.dtype && args.weight.dtype == args.bias.dtype,
          "layer_norm_forward: x and y are of one dtype, weight and bias of one");
  device::enqueue(stream, [=] {
    with_types(args.x.dtype, args.weight.dtype, [&]<class T, class Weight>(Types<T, Weight>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) { forward<T, Weight>(args, rows); });
    });
  });
}

void layer_norm_backward(const LayerNormBackward& args, Stream stream) {
  expects(args.x.dtype == args.dy.dtype && args.x.dtype == args.dx.dtype,
          "layer_norm_backward: x, dy and dx are of one dtype");
  expects(!args.dweight || !args.dbias || args.dweight.dtype == args.dbias.dtype,
          "layer_norm_backward: both gradients are of one dtype");
  device::enqueue(stream, [=] {
    clear_parameters(args);
    if (device::threads_of(stream) == 1) {
      backward_on_one_thread(args);
    } else {
      backward_on_threads(args, stream);
    }
  });
}

}  // namespace tessera::kernels::cpu

#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/layer_norm/layer_norm.hpp"
#include "kernels/support/column_sum.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

float mean_of(const float* x, std::int64_t columns) {
  Vec sum{};
  for_lanes(columns, [&](std::int64_t c, auto lanes) { sum += lanes.read(x + c); });
  return static_cast<float>(sum_of(sum) / static_cast<double>(columns));
}

// The second pass over a row that is in the cache: no cancellation, unlike E[x^2] - E[x]^2.
double variance_of(const float* x, float mean, std::int64_t columns) {
  Vec sum{};
  for_lanes(columns, [&](std::int64_t c, auto lanes) {
    const Vec centred = lanes.mask(lanes.read(x + c) - mean, 0.0F);
    sum += centred * centred;
  });
  return sum_of(sum) / static_cast<double>(columns);
}

void forward(const LayerNormForward& args, const Chunk& rows) {
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const float* x = args.x + r * args.columns;
    float* y = args.y + r * args.columns;
    const float mean = mean_of(x, args.columns);
    const double variance = variance_of(x, mean, args.columns);
    const auto inverse_std =
        static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(kLayerNormEps)));
    for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
      const Vec normal = (lanes.read(x + c) - mean) * inverse_std;
      lanes.write(y + c, normal * lanes.read(args.weight + c) + lanes.read(args.bias + c));
    });
    args.mean[r] = mean;
    args.inverse_std[r] = inverse_std;
  }
}

void backward_row(const LayerNormBackward& args, std::int64_t r) {
  const float* x = args.x + r * args.columns;
  const float* dy = args.dy + r * args.columns;
  float* dx = args.dx + r * args.columns;
  const float mean = args.mean[r];
  const float inverse_std = args.inverse_std[r];

  Vec sum{};     // of dnormal: what the mean's gradient takes away
  Vec scaled{};  // of dnormal * normal: what the variance's takes away
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(args.weight + c);  // 0 beyond the end
    sum += dnormal;
    scaled += dnormal * ((lanes.read(x + c) - mean) * inverse_std);
  });
  const auto columns = static_cast<double>(args.columns);
  const auto sum_mean = static_cast<float>(sum_of(sum) / columns);
  const auto scaled_mean = static_cast<float>(sum_of(scaled) / columns);
  for_lanes(args.columns, [&](std::int64_t c, auto lanes) {
    const Vec dnormal = lanes.read(dy + c) * lanes.read(args.weight + c);
    const Vec normal = (lanes.read(x + c) - mean) * inverse_std;
    lanes.write(dx + c,
                lanes.read(dx + c) + inverse_std * ((dnormal - sum_mean) - normal * scaled_mean));
  });
}

/// Adds `rows` rows from `first` into the gradients of some columns.
void backward_parameters(const LayerNormBackward& args, std::int64_t first, std::int64_t rows,
                         const Chunk& columns) {
  const auto at = [&args, first, left = columns.first](std::int64_t r, std::int64_t c) {
    return (first + r) * args.columns + left + c;
  };
  if (args.dweight != nullptr) {
    add_column_sums(
        args.dweight + columns.first, rows, columns.size(),
        [&](std::int64_t r, std::int64_t c, auto lanes) __attribute__((always_inline)) {
          const Vec centred = lanes.read(args.x + at(r, c)) - args.mean[first + r];
          return lanes.read(args.dy + at(r, c)) * (centred * args.inverse_std[first + r]);
        });
  }
  if (args.dbias != nullptr) {
    add_column_sums(
        args.dbias + columns.first, rows, columns.size(),
        [&](std::int64_t r, std::int64_t c, auto lanes)
            __attribute__((always_inline)) { return lanes.read(args.dy + at(r, c)); });
  }
}

/// body(first, rows) for blocks of rows, in order.
template <class Body>
void for_row_blocks(const LayerNormBackward& args, Body body) {
  for (std::int64_t first = 0; first < args.rows; first += kRowBlock) {
    body(first, std::min(kRowBlock, args.rows - first));
  }
}

// A block of rows is still in the cache when its column sums are formed.
void backward_on_one_thread(const LayerNormBackward& args) {
  for_row_blocks(args, [&](std::int64_t first, std::int64_t rows) {
    for (std::int64_t r = first; r < first + rows; ++r) { backward_row(args, r); }
    backward_parameters(args, first, rows, {0, args.columns, 0});
  });
}

// Rows first, then columns, so that each sum has the same order as on one thread.
void backward_on_threads(const LayerNormBackward& args, Stream stream) {
  parallel_for(stream, args.rows, row_grain(args.columns), [&](const Chunk& rows) {
    for (std::int64_t r = rows.first; r < rows.last; ++r) { backward_row(args, r); }
  });
  parallel_for(stream, args.columns, column_grain(args.rows), [&](const Chunk& columns) {
    for_row_blocks(args, [&](std::int64_t first, std::int64_t rows) {
      backward_parameters(args, first, rows, columns);
    });
  });
}

}  // namespace

void layer_norm_forward(const LayerNormForward& args, Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, args.rows, row_grain(args.columns),
                 [&](const Chunk& rows) { forward(args, rows); });
  });
}

void layer_norm_backward(const LayerNormBackward& args, Stream stream) {
  enqueue(stream, [=] {
    if (threads_of(stream) == 1) {
      backward_on_one_thread(args);
    } else {
      backward_on_threads(args, stream);
    }
  });
}

}  // namespace tessera::kernels::cpu

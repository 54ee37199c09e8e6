#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/support/product.hpp"
#include "kernels/support/softmax.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kTile = 64;  // query rows that are worked on together

/// One head of one sequence: where its rows lie, and the tile of query rows [first, first + rows),
/// which sees the keys [0, keys).
struct Tile {
  std::int64_t qkv;  ///< offset of the head's q; k and v lie `hidden` and 2 `hidden` further
  std::int64_t y;    ///< offset of the head in y and dy
  std::int64_t lse;  ///< offset of the head's rows in log_sum_exp
  std::int64_t hidden;
  std::int64_t size;  ///< of a head
  std::int64_t first;
  std::int64_t rows;
  std::int64_t keys;
  std::int64_t stride;  ///< of a tile's rows in the workspace
  float scale;

  [[nodiscard]] std::int64_t qkv_stride() const { return 3 * hidden; }
  [[nodiscard]] std::int64_t q() const { return qkv + first * qkv_stride(); }
  [[nodiscard]] std::int64_t k() const { return qkv + hidden; }
  [[nodiscard]] std::int64_t v() const { return qkv + 2 * hidden; }
  [[nodiscard]] std::int64_t out() const { return y + first * hidden; }
  /// Keys that row r of the tile may look at.
  [[nodiscard]] std::int64_t visible(std::int64_t r) const { return first + r + 1; }
};

std::int64_t tile_stride(const AttentionShape& shape) {
  return round_up(shape.seq, kLanes);
}

/// What one thread works in.
std::int64_t thread_workspace_elems(const AttentionShape& shape) {
  return 2 * std::min(kTile, shape.seq) * tile_stride(shape);
}

/// Heads of all sequences.
std::int64_t heads_of(const AttentionShape& shape) {
  return shape.batch * shape.heads;
}

/// Heads that are worth a thread.
std::int64_t head_grain(const AttentionShape& shape) {
  constexpr std::int64_t least_work = 128 * 1024;  // multiply-adds
  return ceil_div(least_work, std::max<std::int64_t>(1, shape.seq * shape.seq * shape.head_size));
}

/// body(tile) for every tile of head `head` of all sequences, in order.
template <class Body>
void for_each_tile(const AttentionShape& shape, std::int64_t head, Body body) {
  const std::int64_t hidden = shape.heads * shape.head_size;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
  const std::int64_t row = head / shape.heads * shape.seq;
  const std::int64_t column = head % shape.heads * shape.head_size;
  for (std::int64_t first = 0; first < shape.seq; first += kTile) {
    const std::int64_t rows = std::min(kTile, shape.seq - first);
    body(Tile{row * 3 * hidden + column, row * hidden + column, head * shape.seq, hidden,
              shape.head_size, first, rows, first + rows, tile_stride(shape), scale});
  }
}

/// body(head, workspace) for every head, shared out over the stream's threads: heads have nothing
/// in common.
template <class Body>
void for_each_head(const AttentionShape& shape, float* workspace, Stream stream, Body body) {
  parallel_for(stream, heads_of(shape), head_grain(shape), [&](const Chunk& chunk) {
    float* const own = workspace + chunk.worker * thread_workspace_elems(shape);
    for (std::int64_t head = chunk.first; head < chunk.last; ++head) { body(head, own); }
  });
}

void fill_matrix(Strided<float> matrix, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::fill_n(matrix.data + r * matrix.stride, columns, 0.0F);
  }
}

/// C = A * B or A * B^T.
void product(Strided<const float> a, Strided<const float> b, Transpose transpose_b,
             Strided<float> c, std::int64_t m, std::int64_t n, std::int64_t k) {
  fill_matrix(c, m, n);
  add_product({a, Transpose::no, b, transpose_b, c, m, n, k});
}

/// scores[r, s] = q[first + r] . k[s], unscaled, for all keys of the tile.
void scores_of(const Tile& tile, const float* qkv, float* scores) {
  product({qkv + tile.q(), tile.qkv_stride()}, {qkv + tile.k(), tile.qkv_stride()}, Transpose::yes,
          {scores, tile.stride}, tile.rows, tile.keys, tile.size);
}

void forward_tile(const AttentionForward& args, const Tile& tile, float* scores) {
  float inverse_sum[kTile];
  scores_of(tile, args.qkv, scores);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* row = scores + r * tile.stride;
    const std::int64_t visible = tile.visible(r);
    const float max = row_max(row, visible) * tile.scale;
    const double sum = exp_row(row, row, visible, tile.scale, max);
    std::fill(row + visible, row + tile.keys, 0.0F);
    inverse_sum[r] = static_cast<float>(1.0 / sum);
    args.log_sum_exp[tile.lse + tile.first + r] =
        static_cast<float>(std::log(sum) + static_cast<double>(max));
  }
  // The few columns of y are divided by the sum, not the many of the probabilities.
  float* y = args.y + tile.out();
  product({scores, tile.stride}, {args.qkv + tile.v(), tile.qkv_stride()}, Transpose::no,
          {y, tile.hidden}, tile.rows, tile.size, tile.keys);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    scale_row(y + r * tile.hidden, tile.size, inverse_sum[r]);
  }
}

/// Sum of y * dy over a row: the mean of the probabilities' gradients under the probabilities.
float row_dot(const float* a, const float* b, std::int64_t elems) {
  Vec sum{};
  for_lanes(elems,
            [&](std::int64_t i, auto lanes) { sum += lanes.read(a + i) * lanes.read(b + i); });
  return static_cast<float>(sum_of(sum));
}

/// Scores become probabilities p, and dp becomes p * (dp - mean) * scale, the gradient of the
/// unscaled scores.
void probabilities_and_gradient(float* p, float* dp, std::int64_t elems, float log_sum_exp,
                                float mean, float scale) {
  for_lanes(elems, [&](std::int64_t i, auto lanes) {
    const Vec probability = exp(fma(lanes.read(p + i), splat(scale), splat(-log_sum_exp)));
    lanes.write(p + i, probability);
    lanes.write(dp + i, probability * ((lanes.read(dp + i) - mean) * scale));
  });
}

/// They gather gradients from several tiles.
void zero_key_and_value_gradients(const AttentionBackward& args, std::int64_t head) {
  const AttentionShape& shape = args.shape;
  const std::int64_t hidden = shape.heads * shape.head_size;
  float* const keys = args.dqkv + head / shape.heads * shape.seq * 3 * hidden + hidden +
                      head % shape.heads * shape.head_size;
  fill_matrix({keys, 3 * hidden}, shape.seq, shape.head_size);
  fill_matrix({keys + hidden, 3 * hidden}, shape.seq, shape.head_size);
}

void backward_tile(const AttentionBackward& args, const Tile& tile, float* workspace) {
  float* p = workspace;
  float* dp = workspace + std::min(kTile, args.shape.seq) * tile.stride;
  const Strided<const float> dy{args.dy + tile.out(), tile.hidden};
  const Strided<const float> q{args.qkv + tile.q(), tile.qkv_stride()};
  const Strided<const float> k{args.qkv + tile.k(), tile.qkv_stride()};
  const Strided<const float> v{args.qkv + tile.v(), tile.qkv_stride()};

  scores_of(tile, args.qkv, p);
  product(dy, v, Transpose::yes, {dp, tile.stride}, tile.rows, tile.keys, tile.size);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const std::int64_t visible = tile.visible(r);
    float* row = p + r * tile.stride;
    float* drow = dp + r * tile.stride;
    const float mean =
        row_dot(args.y + tile.out() + r * tile.hidden, dy.data + r * dy.stride, tile.size);
    probabilities_and_gradient(row, drow, visible, args.log_sum_exp[tile.lse + tile.first + r],
                               mean, tile.scale);
    std::fill(row + visible, row + tile.keys, 0.0F);
    std::fill(drow + visible, drow + tile.keys, 0.0F);
  }
  product({dp, tile.stride}, k, Transpose::no, {args.dqkv + tile.q(), tile.qkv_stride()}, tile.rows,
          tile.size, tile.keys);
  add_product({{dp, tile.stride},
               Transpose::yes,
               q,
               Transpose::no,
               {args.dqkv + tile.k(), tile.qkv_stride()},
               tile.keys,
               tile.size,
               tile.rows});
  add_product({{p, tile.stride},
               Transpose::yes,
               dy,
               Transpose::no,
               {args.dqkv + tile.v(), tile.qkv_stride()},
               tile.keys,
               tile.size,
               tile.rows});
}

}  // namespace

std::int64_t attention_workspace_elems(const AttentionShape& shape, int threads) {
  const std::int64_t used = std::min<std::int64_t>(threads, heads_of(shape));
  return std::max<std::int64_t>(used, 1) * thread_workspace_elems(shape);
}

void attention_forward(const AttentionForward& args, Stream stream) {
  enqueue(stream, [=] {
    for_each_head(args.shape, args.workspace, stream, [&](std::int64_t head, float* workspace) {
      for_each_tile(args.shape, head,
                    [&](const Tile& tile) { forward_tile(args, tile, workspace); });
    });
  });
}

void attention_backward(const AttentionBackward& args, Stream stream) {
  enqueue(stream, [=] {
    for_each_head(args.shape, args.workspace, stream, [&](std::int64_t head, float* workspace) {
      zero_key_and_value_gradients(args, head);
      for_each_tile(args.shape, head,
                    [&](const Tile& tile) { backward_tile(args, tile, workspace); });
    });
  });
}

}  // namespace tessera::kernels::cpu

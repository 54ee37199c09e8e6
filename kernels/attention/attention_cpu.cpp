#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/head_mask.hpp"
#include "kernels/matmul/matmul_strided.hpp"
#include "kernels/support/softmax.hpp"
#include "kernels/support/typed.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kTile = 64;  // query rows that are processed together

/// AttentionForward and AttentionBackward of one head, with all arrays in fp32.
struct Forward {
  const float* qkv;
  float* y;
  float* log_sum_exp;
  AttentionShape shape;
  HeadMask mask;
};
struct Backward {
  const float* qkv;
  const float* y;
  const float* log_sum_exp;
  const float* dy;
  float* dqkv;
  AttentionShape shape;
  HeadMask mask;
};

/// One head of one sequence: the offsets of its rows, and the tile of query rows [first, first +
/// rows), which attends to the keys [0, keys).
struct Tile {
  std::int64_t qkv;  ///< offset of the head's q; k and v lie `hidden` and 2 * `hidden` further
  std::int64_t y;    ///< offset of the head in y and dy
  std::int64_t lse;  ///< offset of the head's rows in log_sum_exp
  std::int64_t hidden;
  std::int64_t size;  ///< of the head
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
  /// Keys that row r of the tile may attend to.
  [[nodiscard]] std::int64_t visible(std::int64_t r) const { return first + r + 1; }
};

std::int64_t tile_stride(const AttentionShape& shape) {
  return round_up(shape.seq, kLanes);
}

/// Elements of one thread's tiles.
std::int64_t tile_elems(const AttentionShape& shape) {
  return 2 * std::min(kTile, shape.seq) * tile_stride(shape);
}

/// Workspace of one thread: its tiles, and for 16-bit dtypes one head of qkv, dqkv, y and dy.
std::int64_t thread_workspace_elems(const AttentionShape& shape, DType dtype) {
  const std::int64_t heads = dtype == DType::fp32 ? 0 : 8 * shape.seq * shape.head_size;
  return tile_elems(shape) + heads;
}

/// Heads of all sequences.
std::int64_t heads_of(const AttentionShape& shape) {
  return shape.batch * shape.heads;
}

/// Number of heads that is worth a thread.
std::int64_t head_grain(const AttentionShape& shape) {
  constexpr std::int64_t least_work = 128 * 1024;  // multiply-adds
  return ceil_div(least_work, std::max<std::int64_t>(1, shape.seq * shape.seq * shape.head_size));
}

/// Calls body(tile) for every tile of head `head` of all sequences, in order.
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

/// Calls body(head, workspace) for every head, on all threads of the stream: heads are independent.
template <class Body>
void for_each_head(const AttentionShape& shape, DType dtype, float* workspace, Stream stream,
                   Body body) {
  device::parallel_for(stream, heads_of(shape), head_grain(shape), [&](const device::Chunk& chunk) {
    float* const own = workspace + chunk.worker * thread_workspace_elems(shape, dtype);
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
  add_matmul({a, Transpose::no, b, transpose_b, c, m, n, k});
}

/// scores[r, s] = q[first + r] . k[s], unscaled, for all keys of the tile.
void scores_of(const Tile& tile, const float* qkv, float* scores) {
  product({qkv + tile.q(), tile.qkv_stride()}, {qkv + tile.k(), tile.qkv_stride()}, Transpose::yes,
          {scores, tile.stride}, tile.rows, tile.keys, tile.size);
}

/// Sets the dropped probabilities of a row to zero.
void drop_row(const HeadMask& mask, std::int64_t query, float* row, std::int64_t visible) {
  mask.for_keys(query, visible, [row](std::int64_t first, std::int64_t elems, const auto& kept) {
    for_lanes(elems, [&](std::int64_t i, auto lanes) {
      float* const p = row + first + i;
      lanes.write(p, kept(i) ? lanes.read(p) : Vec{});
    });
  });
}

void forward_tile(const Forward& args, const Tile& tile, float* scores) {
  float inverse_sum[kTile];
  scores_of(tile, args.qkv, scores);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* row = scores + r * tile.stride;
    const std::int64_t visible = tile.visible(r);
    const float max = row_max(row, visible) * tile.scale;
    const double sum = exp_row(row, row, visible, tile.scale, max);
    std::fill(row + visible, row + tile.keys, 0.0F);
    inverse_sum[r] = static_cast<float>(1.0 / sum);
    if (args.mask.on()) {
      drop_row(args.mask, tile.first + r, row, visible);
      inverse_sum[r] *= args.mask.factor();
    }
    args.log_sum_exp[tile.lse + tile.first + r] =
        static_cast<float>(std::log(sum) + static_cast<double>(max));
  }
  // Divide the few columns of y by the sum rather than the many of the probabilities.
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

/// Turns scores into probabilities p, and dp into p * (dp - mean) * scale, the gradient of the
/// unscaled scores.
void probabilities_and_gradient(float* p, float* dp, std::int64_t elems, float log_sum_exp,
                                float mean, float scale) {
  for_lanes(elems, [&](std::int64_t i, auto lanes) {
    const Vec probability = exp(fma(lanes.read(p + i), splat(scale), splat(-log_sum_exp)));
    lanes.write(p + i, probability);
    lanes.write(dp + i, probability * ((lanes.read(dp + i) - mean) * scale));
  });
}

/// The same for a row with dropped probabilities: their dp counts as zero, and p becomes the
/// probabilities that y was computed with. The mean, computed from y, includes the dropped ones.
void dropped_probabilities_and_gradient(const HeadMask& mask, std::int64_t query, float* p,
                                        float* dp, std::int64_t visible, float log_sum_exp,
                                        float mean, float scale) {
  const float factor = mask.factor();
  mask.for_keys(query, visible, [&](std::int64_t first, std::int64_t elems, const auto& kept) {
    float* const some_p = p + first;
    float* const some_dp = dp + first;
    for_lanes(elems, [&](std::int64_t i, auto lanes) {
      lanes.write(some_dp + i, kept(i) ? lanes.read(some_dp + i) * factor : Vec{});
    });
    probabilities_and_gradient(some_p, some_dp, elems, log_sum_exp, mean, scale);
    for_lanes(elems, [&](std::int64_t i, auto lanes) {
      lanes.write(some_p + i, kept(i) ? lanes.read(some_p + i) * factor : Vec{});
    });
  });
}

/// Zeroes the gradients of keys and values, which accumulate over several tiles.
void zero_key_and_value_gradients(const Backward& args, std::int64_t head) {
  const AttentionShape& shape = args.shape;
  const std::int64_t hidden = shape.heads * shape.head_size;
  float* const keys = args.dqkv + head / shape.heads * shape.seq * 3 * hidden + hidden +
                      head % shape.heads * shape.head_size;
  fill_matrix({keys, 3 * hidden}, shape.seq, shape.head_size);
  fill_matrix({keys + hidden, 3 * hidden}, shape.seq, shape.head_size);
}

void backward_tile(const Backward& args, const Tile& tile, float* workspace) {
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
    const float log_sum_exp = args.log_sum_exp[tile.lse + tile.first + r];
    if (args.mask.on()) {
      dropped_probabilities_and_gradient(args.mask, tile.first + r, row, drow, visible, log_sum_exp,
                                         mean, tile.scale);
    } else {
      probabilities_and_gradient(row, drow, visible, log_sum_exp, mean, tile.scale);
    }
    std::fill(row + visible, row + tile.keys, 0.0F);
    std::fill(drow + visible, drow + tile.keys, 0.0F);
  }
  product({dp, tile.stride}, k, Transpose::no, {args.dqkv + tile.q(), tile.qkv_stride()}, tile.rows,
          tile.size, tile.keys);
  add_matmul({{dp, tile.stride},
              Transpose::yes,
              q,
              Transpose::no,
              {args.dqkv + tile.k(), tile.qkv_stride()},
              tile.keys,
              tile.size,
              tile.rows});
  add_matmul({{p, tile.stride},
              Transpose::yes,
              dy,
              Transpose::no,
              {args.dqkv + tile.v(), tile.qkv_stride()},
              tile.keys,
              tile.size,
              tile.rows});
}

void forward_head(const Forward& args, std::int64_t head, float* tiles) {
  for_each_tile(args.shape, head, [&](const Tile& tile) { forward_tile(args, tile, tiles); });
}

void backward_head(const Backward& args, std::int64_t head, float* tiles) {
  zero_key_and_value_gradients(args, head);
  for_each_tile(args.shape, head, [&](const Tile& tile) { backward_tile(args, tile, tiles); });
}

template <class Args>
HeadMask mask_of(const Args& args, std::int64_t head) {
  return {args.shape, args.dropout, args.key, args.first_head, head};
}

// A 16-bit head is widened into the workspace and computed as if it were the only one.

AttentionShape one_head(const AttentionShape& shape) {
  return {.batch = 1, .seq = shape.seq, .heads = 1, .head_size = shape.head_size};
}

/// Copies `parts` matrices [seq, head_size] that lie side by side, each of one head of `heads`,
/// from rows of `parts * heads * head_size` to rows of `parts * head_size` or back.
template <class To, class From>
void copy_head(To* to, std::int64_t to_heads, const From* from, std::int64_t from_heads,
               std::int64_t parts, const AttentionShape& shape) {
  const std::int64_t size = shape.head_size;
  for (std::int64_t row = 0; row < shape.seq * parts; ++row) {
    To* const out = to + row * to_heads * size;
    const From* const in = from + row * from_heads * size;
    for_lanes(size, [=](std::int64_t i, auto lanes) { lanes.write(out + i, lanes.read(in + i)); });
  }
}

/// Where head `head` begins in a tensor of `parts` matrices side by side.
std::int64_t head_offset(const AttentionShape& shape, std::int64_t head, std::int64_t parts) {
  const std::int64_t first_row = head / shape.heads * shape.seq;
  return (first_row * parts * shape.heads + head % shape.heads) * shape.head_size;
}

template <class Half>
void forward_widened(const AttentionForward& args, std::int64_t head, float* workspace) {
  const AttentionShape& shape = args.shape;
  const std::int64_t elems = shape.seq * shape.head_size;
  float* const qkv = workspace + tile_elems(shape);
  float* const y = qkv + 3 * elems;
  copy_head(qkv, 1, args.qkv.as<Half>() + head_offset(shape, head, 3), shape.heads, 3, shape);
  forward_head({qkv, y, args.log_sum_exp + head * shape.seq, one_head(shape), mask_of(args, head)},
               0, workspace);
  copy_head(args.y.as<Half>() + head_offset(shape, head, 1), shape.heads, y, 1, 1, shape);
}

template <class Half>
void backward_widened(const AttentionBackward& args, std::int64_t head, float* workspace) {
  const AttentionShape& shape = args.shape;
  const std::int64_t elems = shape.seq * shape.head_size;
  float* const qkv = workspace + tile_elems(shape);
  float* const dqkv = qkv + 3 * elems;
  float* const y = dqkv + 3 * elems;
  float* const dy = y + elems;
  const std::int64_t narrow = head_offset(shape, head, 1);
  const std::int64_t wide = head_offset(shape, head, 3);
  copy_head(qkv, 1, args.qkv.as<Half>() + wide, shape.heads, 3, shape);
  copy_head(y, 1, args.y.as<Half>() + narrow, shape.heads, 1, shape);
  copy_head(dy, 1, args.dy.as<Half>() + narrow, shape.heads, 1, shape);
  backward_head(
      {qkv, y, args.log_sum_exp + head * shape.seq, dy, dqkv, one_head(shape), mask_of(args, head)},
      0, workspace);
  copy_head(args.dqkv.as<Half>() + wide, shape.heads, dqkv, 1, 3, shape);
}

}  // namespace

std::int64_t attention_workspace_elems(const AttentionShape& shape, DType dtype,
                                       const device::StreamKernels& on) {
  const std::int64_t used = std::min<std::int64_t>(on.threads, heads_of(shape));
  return std::max<std::int64_t>(used, 1) * thread_workspace_elems(shape, dtype);
}

void attention_forward(const AttentionForward& args, Stream stream) {
  const DType dtype = args.qkv.dtype;
  expects(args.y.dtype == dtype, "attention_forward: qkv and y are of one dtype");
  expects(args.dropout >= 0.0F && args.dropout < 1.0F, "attention_forward: dropout is in [0, 1)");
  device::enqueue(stream, [=] {
    with_type(dtype, [&]<class T>(std::type_identity<T>) {
      const auto work = [&](std::int64_t head, float* workspace) {
        if constexpr (std::is_same_v<T, float>) {
          forward_head({args.qkv.as<float>(), args.y.as<float>(), args.log_sum_exp, args.shape,
                        mask_of(args, head)},
                       head, workspace);
        } else {
          forward_widened<T>(args, head, workspace);
        }
      };
      for_each_head(args.shape, dtype, args.workspace, stream, work);
    });
  });
}

void attention_backward(const AttentionBackward& args, Stream stream) {
  const DType dtype = args.qkv.dtype;
  expects(args.y.dtype == dtype && args.dy.dtype == dtype && args.dqkv.dtype == dtype,
          "attention_backward: qkv, y, dy and dqkv are of one dtype");
  expects(args.dropout >= 0.0F && args.dropout < 1.0F, "attention_backward: dropout is in [0, 1)");
  device::enqueue(stream, [=] {
    with_type(dtype, [&]<class T>(std::type_identity<T>) {
      const auto work = [&](std::int64_t head, float* workspace) {
        if constexpr (std::is_same_v<T, float>) {
          backward_head(
              {args.qkv.as<float>(), args.y.as<float>(), args.log_sum_exp, args.dy.as<float>(),
               args.dqkv.as<float>(), args.shape, mask_of(args, head)},
              head, workspace);
        } else {
          backward_widened<T>(args, head, workspace);
        }
      };
      for_each_head(args.shape, dtype, args.workspace, stream, work);
    });
  });
}

}  // namespace tessera::kernels::cpu

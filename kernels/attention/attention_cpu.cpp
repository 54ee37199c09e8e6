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

/// One query head of one sequence, with all arrays in fp32: row t of `q` is the query of token t.
struct Head {
  std::int64_t seq;
  std::int64_t size;
  float scale;
  SeenKeys seen;
  HeadMask mask;
  Strided<const float> q;
  Strided<const float> k;
  Strided<const float> v;
};
struct Forward {
  Head head;
  Strided<float> y;
  float* log_sum_exp;
};
struct Backward {
  Head head;
  Strided<const float> y;
  const float* log_sum_exp;
  Strided<const float> dy;
  Strided<float> dq;
  Strided<float> dk;  ///< added to
  Strided<float> dv;  ///< added to
};

template <class T>
Strided<T> from_row(Strided<T> matrix, std::int64_t row) {
  return {matrix.data + row * matrix.stride, matrix.stride};
}

/// The query rows [first, first + rows) of a head, which attend to some of the keys [from, from +
/// keys).
struct Tile {
  const Head& head;
  std::int64_t first;
  std::int64_t rows;
  std::int64_t from;  ///< a multiple of kPhiloxWords
  std::int64_t keys;
  std::int64_t stride;  ///< of a tile's rows in the workspace

  [[nodiscard]] Strided<const float> q() const { return from_row(head.q, first); }
  [[nodiscard]] Strided<const float> k() const { return from_row(head.k, from); }
  [[nodiscard]] Strided<const float> v() const { return from_row(head.v, from); }
  /// Row r of the tile attends to the keys from + [hidden(r), visible(r)). A row whose first key
  /// lies before the tile's, since first_key decreases, begins at the tile's.
  [[nodiscard]] std::int64_t hidden(std::int64_t r) const {
    return std::max<std::int64_t>(head.seen.first(first + r) - from, 0);
  }
  [[nodiscard]] std::int64_t visible(std::int64_t r) const { return first + r + 1 - from; }
};

std::int64_t tile_stride(std::int64_t seq) {
  return round_up(seq, kLanes);
}

/// Elements of one thread's tiles.
std::int64_t tile_elems(std::int64_t seq) {
  return 2 * std::min(kTile, seq) * tile_stride(seq);
}

/// Workspace of one thread: its tiles, and for 16-bit dtypes one head of qkv, dqkv, y and dy.
std::int64_t thread_workspace_elems(const AttentionShape& shape, DType dtype) {
  const std::int64_t heads = dtype == DType::fp32 ? 0 : 8 * shape.seq * shape.head_size;
  return tile_elems(shape.seq) + heads;
}

/// Number of heads that is worth a thread.
std::int64_t head_grain(const AttentionShape& shape) {
  constexpr std::int64_t least_work = 128 * 1024;  // multiply-adds
  return ceil_div(least_work, std::max<std::int64_t>(1, shape.seq * shape.seq * shape.head_size));
}

/// Calls body(tile) for every tile of a head, in order.
template <class Body>
void for_each_tile(const Head& head, Body body) {
  for (std::int64_t first = 0; first < head.seq; first += kTile) {
    const std::int64_t rows = std::min(kTile, head.seq - first);
    const std::int64_t from = head.seen.first(first) / kPhiloxWords * kPhiloxWords;
    body(Tile{head, first, rows, from, first + rows - from, tile_stride(head.seq)});
  }
}

/// Calls body(sample, head, workspace) for `heads` independent heads of every sample, on all
/// threads of the stream.
template <class Body>
void for_each_head(const AttentionShape& shape, std::int64_t heads, DType dtype, float* workspace,
                   Stream stream, Body body) {
  device::parallel_for(
      stream, shape.batch * heads, head_grain(shape), [&](const device::Chunk& chunk) {
        float* const own = workspace + chunk.worker * thread_workspace_elems(shape, dtype);
        for (std::int64_t i = chunk.first; i < chunk.last; ++i) { body(i / heads, i % heads, own); }
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

/// scores[r, s] = q[first + r] . k[from + s], unscaled, for all keys of the tile.
void scores_of(const Tile& tile, float* scores) {
  product(tile.q(), tile.k(), Transpose::yes, {scores, tile.stride}, tile.rows, tile.keys,
          tile.head.size);
}

/// Zeroes what row r of a tile does not attend to.
void hide(const Tile& tile, std::int64_t r, float* row) {
  std::fill(row, row + tile.hidden(r), 0.0F);
  std::fill(row + tile.visible(r), row + tile.keys, 0.0F);
}

/// Sets the dropped probabilities of row r of a tile to zero.
void drop_row(const Tile& tile, std::int64_t r, float* row) {
  tile.head.mask.for_keys(tile.first + r, tile.from, tile.visible(r),
                          [row](std::int64_t first, std::int64_t elems, const auto& kept) {
                            for_lanes(elems, [&](std::int64_t i, auto lanes) {
                              float* const p = row + first + i;
                              lanes.write(p, kept(i) ? lanes.read(p) : Vec{});
                            });
                          });
}

void forward_tile(const Forward& args, const Tile& tile, float* scores) {
  const Head& head = tile.head;
  float inverse_sum[kTile];
  scores_of(tile, scores);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* const row = scores + r * tile.stride;
    float* const seen = row + tile.hidden(r);
    const std::int64_t count = tile.visible(r) - tile.hidden(r);
    const float max = row_max(seen, count) * head.scale;
    const double sum = exp_row(seen, seen, count, head.scale, max);
    hide(tile, r, row);
    inverse_sum[r] = static_cast<float>(1.0 / sum);
    if (head.mask.on()) {
      drop_row(tile, r, row);
      inverse_sum[r] *= head.mask.factor();
    }
    args.log_sum_exp[tile.first + r] = static_cast<float>(std::log(sum) + static_cast<double>(max));
  }
  // Divide the few columns of y by the sum rather than the many of the probabilities.
  const Strided<float> y = from_row(args.y, tile.first);
  product({scores, tile.stride}, tile.v(), Transpose::no, y, tile.rows, head.size, tile.keys);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    scale_row(y.data + r * y.stride, head.size, inverse_sum[r]);
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

/// The same for row r of a tile with dropped probabilities: their dp counts as zero, and p becomes
/// the probabilities that y was computed with. The mean, computed from y, includes the dropped
/// ones.
void dropped_probabilities_and_gradient(const Tile& tile, std::int64_t r, float* p, float* dp,
                                        float log_sum_exp, float mean) {
  const HeadMask& mask = tile.head.mask;
  const float factor = mask.factor();
  const float scale = tile.head.scale;
  mask.for_keys(tile.first + r, tile.from, tile.visible(r),
                [&](std::int64_t first, std::int64_t elems, const auto& kept) {
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

void backward_tile(const Backward& args, const Tile& tile, float* workspace) {
  const Head& head = tile.head;
  const Strided<float> p{workspace, tile.stride};
  const Strided<float> dp{workspace + std::min(kTile, head.seq) * tile.stride, tile.stride};
  const Strided<const float> y = from_row(args.y, tile.first);
  const Strided<const float> dy = from_row(args.dy, tile.first);

  scores_of(tile, p.data);
  product(dy, tile.v(), Transpose::yes, dp, tile.rows, tile.keys, head.size);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* const row = p.data + r * p.stride;
    float* const drow = dp.data + r * dp.stride;
    const float mean = row_dot(y.data + r * y.stride, dy.data + r * dy.stride, head.size);
    const float log_sum_exp = args.log_sum_exp[tile.first + r];
    if (head.mask.on()) {
      dropped_probabilities_and_gradient(tile, r, row, drow, log_sum_exp, mean);
    } else {
      const std::int64_t hidden = tile.hidden(r);
      probabilities_and_gradient(row + hidden, drow + hidden, tile.visible(r) - hidden, log_sum_exp,
                                 mean, head.scale);
    }
    hide(tile, r, row);
    hide(tile, r, drow);
  }
  const Strided<const float> const_p{p.data, p.stride};
  const Strided<const float> const_dp{dp.data, dp.stride};
  product(const_dp, tile.k(), Transpose::no, from_row(args.dq, tile.first), tile.rows, head.size,
          tile.keys);
  add_matmul({const_dp, Transpose::yes, tile.q(), Transpose::no, from_row(args.dk, tile.from),
              tile.keys, head.size, tile.rows});
  add_matmul({const_p, Transpose::yes, dy, Transpose::no, from_row(args.dv, tile.from), tile.keys,
              head.size, tile.rows});
}

void forward_head(const Forward& args, float* tiles) {
  for_each_tile(args.head, [&](const Tile& tile) { forward_tile(args, tile, tiles); });
}

void backward_head(const Backward& args, float* tiles) {
  for_each_tile(args.head, [&](const Tile& tile) { backward_tile(args, tile, tiles); });
}

/// Where the matrices of a query head of a sample begin in the arrays, whose rows are `packed` or
/// `narrow` elements apart.
struct Place {
  std::int64_t packed;
  std::int64_t narrow;
  std::int64_t q;
  std::int64_t k;
  std::int64_t v;
  std::int64_t y;
  std::int64_t statistics;  ///< in log_sum_exp

  Place(const AttentionShape& shape, std::int64_t sample, std::int64_t head)
      : packed{packed_of(shape)},
        narrow{shape.heads * shape.head_size},
        q{sample * shape.seq * packed + head * shape.head_size},
        k{sample * shape.seq * packed + narrow + head / group_of(shape) * shape.head_size},
        v{k + kv_heads_of(shape) * shape.head_size},
        y{sample * shape.seq * narrow + head * shape.head_size},
        statistics{(sample * shape.heads + head) * shape.seq} {}
};

/// A query head whose matrices are given.
template <class Args>
Head head_of(const Args& args, std::int64_t sample, std::int64_t head, Strided<const float> q,
             Strided<const float> k, Strided<const float> v) {
  const AttentionShape& shape = args.shape;
  return {shape.seq,
          shape.head_size,
          static_cast<float>(scale_of(shape)),
          seen_keys(args, sample),
          {shape, args.dropout, args.key, args.first_head, sample * shape.heads + head},
          q,
          k,
          v};
}

/// Calls body(head) for the query heads of a key head, in order.
template <class Body>
void for_each_in_group(const AttentionShape& shape, std::int64_t kv_head, Body body) {
  const std::int64_t group = group_of(shape);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) { body(head); }
}

void forward_fp32(const AttentionForward& args, std::int64_t sample, std::int64_t head,
                  float* tiles) {
  const Place at{args.shape, sample, head};
  const auto* const qkv = args.qkv.as<float>();
  forward_head({head_of(args, sample, head, {qkv + at.q, at.packed}, {qkv + at.k, at.packed},
                        {qkv + at.v, at.packed}),
                {args.y.as<float>() + at.y, at.narrow},
                args.log_sum_exp + at.statistics},
               tiles);
}

void backward_fp32(const AttentionBackward& args, std::int64_t sample, std::int64_t kv_head,
                   float* tiles) {
  const AttentionShape& shape = args.shape;
  const auto* const qkv = args.qkv.as<float>();
  auto* const dqkv = args.dqkv.as<float>();
  const Place first{shape, sample, kv_head * group_of(shape)};
  fill_matrix({dqkv + first.k, first.packed}, shape.seq, shape.head_size);
  fill_matrix({dqkv + first.v, first.packed}, shape.seq, shape.head_size);
  for_each_in_group(shape, kv_head, [&](std::int64_t head) {
    const Place at{shape, sample, head};
    backward_head({head_of(args, sample, head, {qkv + at.q, at.packed}, {qkv + at.k, at.packed},
                           {qkv + at.v, at.packed}),
                   {args.y.as<float>() + at.y, at.narrow},
                   args.log_sum_exp + at.statistics,
                   {args.dy.as<float>() + at.y, at.narrow},
                   {dqkv + at.q, at.packed},
                   {dqkv + at.k, at.packed},
                   {dqkv + at.v, at.packed}},
                  tiles);
  });
}

// The matrices of a 16-bit head are widened into the workspace.

/// to = from, a matrix [seq, head_size].
template <class To, class From>
void copy_matrix(Strided<To> to, Strided<From> from, const AttentionShape& shape) {
  for (std::int64_t row = 0; row < shape.seq; ++row) {
    To* const out = to.data + row * to.stride;
    const From* const in = from.data + row * from.stride;
    for_lanes(shape.head_size,
              [=](std::int64_t i, auto lanes) { lanes.write(out + i, lanes.read(in + i)); });
  }
}

/// Matrices [seq, head_size] in a thread's workspace, after its tiles.
class Matrices {
 public:
  Matrices(const AttentionShape& shape, float* workspace)
      : first_{workspace + tile_elems(shape.seq)}, seq_{shape.seq}, size_{shape.head_size} {}

  [[nodiscard]] Strided<float> operator[](std::int64_t i) const {
    return {first_ + i * seq_ * size_, size_};
  }
  [[nodiscard]] Strided<const float> input(std::int64_t i) const {
    return {first_ + i * seq_ * size_, size_};
  }

 private:
  float* first_;
  std::int64_t seq_;
  std::int64_t size_;
};

template <class Half>
void forward_widened(const AttentionForward& args, std::int64_t sample, std::int64_t head,
                     float* workspace) {
  const AttentionShape& shape = args.shape;
  const Place at{shape, sample, head};
  const Matrices wide{shape, workspace};
  const Half* const qkv = args.qkv.as<Half>();
  const auto widen = [&](std::int64_t to, std::int64_t from) {
    copy_matrix(wide[to], Strided<const Half>{qkv + from, at.packed}, shape);
  };
  widen(0, at.q);
  widen(1, at.k);
  widen(2, at.v);
  forward_head({head_of(args, sample, head, wide.input(0), wide.input(1), wide.input(2)), wide[3],
                args.log_sum_exp + at.statistics},
               workspace);
  copy_matrix(Strided<Half>{args.y.as<Half>() + at.y, at.narrow}, wide.input(3), shape);
}

template <class Half>
void backward_widened(const AttentionBackward& args, std::int64_t sample, std::int64_t kv_head,
                      float* workspace) {
  const AttentionShape& shape = args.shape;
  const Place first{shape, sample, kv_head * group_of(shape)};
  const Matrices wide{shape, workspace};
  const auto widen = [&](std::int64_t to, const Half* from, std::int64_t stride) {
    copy_matrix(wide[to], Strided<const Half>{from, stride}, shape);
  };
  const auto narrow = [&](std::int64_t to, std::int64_t from) {
    copy_matrix(Strided<Half>{args.dqkv.as<Half>() + to, first.packed}, wide.input(from), shape);
  };
  const Half* const qkv = args.qkv.as<Half>();
  enum : std::int64_t { q, k, v, dq, dk, dv, y, dy };
  widen(k, qkv + first.k, first.packed);
  widen(v, qkv + first.v, first.packed);
  fill_matrix(wide[dk], shape.seq, shape.head_size);
  fill_matrix(wide[dv], shape.seq, shape.head_size);
  for_each_in_group(shape, kv_head, [&](std::int64_t head) {
    const Place at{shape, sample, head};
    widen(q, qkv + at.q, at.packed);
    widen(y, args.y.as<Half>() + at.y, at.narrow);
    widen(dy, args.dy.as<Half>() + at.y, at.narrow);
    backward_head(
        {head_of(args, sample, head, wide.input(q), wide.input(k), wide.input(v)), wide.input(y),
         args.log_sum_exp + at.statistics, wide.input(dy), wide[dq], wide[dk], wide[dv]},
        workspace);
    narrow(at.q, dq);
  });
  narrow(first.k, dk);
  narrow(first.v, dv);
}

}  // namespace

std::int64_t attention_workspace_elems(const AttentionShape& shape, DType dtype,
                                       const device::StreamKernels& on) {
  const std::int64_t used = std::min<std::int64_t>(on.threads, shape.batch * shape.heads);
  return std::max<std::int64_t>(used, 1) * thread_workspace_elems(shape, dtype);
}

void attention_forward(const AttentionForward& args, Stream stream) {
  const DType dtype = args.qkv.dtype;
  expects(args.y.dtype == dtype, "attention_forward: qkv and y are of one dtype");
  expects(args.dropout >= 0.0F && args.dropout < 1.0F, "attention_forward: dropout is in [0, 1)");
  device::enqueue(stream, [=] {
    with_type(dtype, [&]<class T>(std::type_identity<T>) {
      const auto work = [&](std::int64_t sample, std::int64_t head, float* workspace) {
        if constexpr (std::is_same_v<T, float>) {
          forward_fp32(args, sample, head, workspace);
        } else {
          forward_widened<T>(args, sample, head, workspace);
        }
      };
      for_each_head(args.shape, args.shape.heads, dtype, args.workspace, stream, work);
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
      const auto work = [&](std::int64_t sample, std::int64_t kv_head, float* workspace) {
        if constexpr (std::is_same_v<T, float>) {
          backward_fp32(args, sample, kv_head, workspace);
        } else {
          backward_widened<T>(args, sample, kv_head, workspace);
        }
      };
      for_each_head(args.shape, kv_heads_of(args.shape), dtype, args.workspace, stream, work);
    });
  });
}

}  // namespace tessera::kernels::cpu

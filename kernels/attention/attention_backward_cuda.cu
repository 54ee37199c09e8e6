#include "kernels/attention/attention_cores.hpp"
#include "kernels/attention/attention_tiles_cuda.cuh"
#include "kernels/attention/cuda/attention_cudnn.hpp"

// Three kernels: the mean of each row's gradients of probabilities; then the gradients of q, one
// block per tile of query rows; then those of k and v, one block per tile of keys, for all query
// heads of a key head. The last two recompute the probabilities. One thread sums each element, in
// order.

namespace tessera::kernels::cuda {
namespace {

struct Means {
  ConstValues y;
  ConstValues dy;
  float* means;
  Heads heads;
};

// One warp per row of a head.
__global__ void means_kernel(Means args) {
  const Heads& heads = args.heads;
  const std::int64_t warp_elems = kWarp;
  for (std::int64_t row = first_index() / warp_elems; row < heads.count * heads.seq;
       row += index_stride() / warp_elems) {
    const Head head{heads, row / heads.seq};
    const std::int64_t at = head.at(row % heads.seq, Matrix::y);
    float sum = 0.0F;
    for (std::int64_t d = threadIdx.x % kWarp; d < heads.size; d += kWarp) {
      sum = fmaf(load_one(args.y.data, args.y.dtype, at + d),
                 load_one(args.dy.data, args.dy.dtype, at + d), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) { args.means[row] = sum; }
  }
}

struct Backward {
  ConstValues qkv;
  const float* log_sum_exp;
  ConstValues dy;
  Values dqkv;
  const float* means;  ///< indexed as log_sum_exp: sum of y * dy over each row
  Heads heads;
};

/// The probabilities with which queries attend to keys, and the gradient of their scores.
struct Looks {
  Part p = {};  ///< with the mask applied
  Part dscores = {};
};

/// Multiplies a tile of query rows by a tile of keys. `a` and `b` are scratch, written only after
/// all threads have arrived.
template <Kind Which, int Chunks>
__device__ Looks looks_of(const Backward& args, const TiledHead& head, std::int64_t queries,
                          std::int64_t keys, Tile& a, Tile& b) {
  const Heads& heads = args.heads;
  Looks looks;
  const auto load_scores = [&](int chunk) {
    load_transposed(a, head.tile(args.qkv, queries, chunk, Matrix::q));
    load_transposed(b, head.tile(args.qkv, keys, chunk, Matrix::k));
  };
  multiply_rows<Chunks>(head, a, b, load_scores, looks.p);
  const auto load_gradients = [&](int chunk) {
    load_transposed(a, head.tile(args.dy, queries, chunk, Matrix::y));
    load_transposed(b, head.tile(args.qkv, keys, chunk, Matrix::v));
  };
  multiply_rows<Chunks>(head, a, b, load_gradients, looks.dscores);
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const std::int64_t t = queries * kTileSide + part_row() + i;
    const std::int64_t first = keys * kTileSide + part_column();
    const bool inside = t < heads.seq;
    const int first_seen = head.first_seen<Which>(t, first);
    const float log_sum_exp = inside ? args.log_sum_exp[head.row(t)] : 0.0F;
    const float mean = inside ? args.means[head.row(t)] : 0.0F;
    float factors[kSide] = {1.0F, 1.0F, 1.0F, 1.0F};
    if (heads.mask.on) { head.mask(t, first, factors); }
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const bool visible = inside && first + j <= t && (Which == Kind::plain || j >= first_seen);
      const float p = expf(fmaf(looks.p[i][j], heads.scale, -log_sum_exp));
      const float dp = looks.dscores[i][j] * factors[j];
      looks.p[i][j] = visible ? p * factors[j] : 0.0F;
      looks.dscores[i][j] = visible ? p * ((dp - mean) * heads.scale) : 0.0F;
    }
  }
  return looks;
}

/// parts[chunk] += a^T b, where b is `rows(chunk)` for each chunk, with `depth` nonzero rows. On
/// entry `a` is stored, and no thread reads `b` any more.
template <Order order, int Chunks, class RowsOf>
__device__ void multiply_columns(const TiledHead& head, const Tile& a, Tile& b, RowsOf rows,
                                 int depth, float (&parts)[Chunks][kSide][kSide]) {
#pragma unroll
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    if (head.columns(chunk) <= 0) { break; }
    if (chunk > 0) { __syncthreads(); }
    load_rows(b, rows(chunk));
    __syncthreads();
    multiply<order>(a, b, depth, parts[chunk]);
  }
}

template <Kind Which, int Chunks>
__global__ void __launch_bounds__(kTileThreads, Chunks <= 2 ? 2 : 1) query_kernel(Backward args) {
  __shared__ Tile a;
  __shared__ Tile b;
  const Heads& heads = args.heads;
  const TiledHead head{{heads, blockIdx.x % heads.count}};
  // Start with the tiles that have the most keys, so that no long tile runs last.
  const std::int64_t queries = heads.tiles(kTileSide) - 1 - blockIdx.x / heads.count;
  float dq[Chunks][kSide][kSide] = {};
  const std::int64_t first_keys = head.first_tile<Which>(queries * kTileSide);
  for (std::int64_t keys = first_keys; keys <= queries; ++keys) {
    const Looks looks = looks_of<Which, Chunks>(args, head, queries, keys, a, b);
    __syncthreads();
    store_parts_transposed(a, looks.dscores);
    multiply_columns<Order::exchanged>(
        head, a, b, [&](int chunk) { return head.tile(args.qkv, keys, chunk, Matrix::k); },
        head.rows(keys), dq);
  }
#pragma unroll
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    head.store(args.dqkv, queries, chunk, Matrix::q, dq[chunk]);
  }
}

template <Kind Which, int Chunks>
__global__ void __launch_bounds__(kTileThreads, Chunks == 1 ? 2 : 1) key_kernel(Backward args) {
  __shared__ Tile a;
  __shared__ Tile b;
  const Heads& heads = args.heads;
  const std::int64_t key_heads = Which == Kind::plain ? heads.count : heads.key_count();
  const std::int64_t group = Which == Kind::plain ? 1 : heads.group;
  const std::int64_t first_head = blockIdx.x % key_heads * group;
  const std::int64_t keys = blockIdx.x / key_heads;  // the most queries attend to the first keys
  float dk[Chunks][kSide][kSide] = {};
  float dv[Chunks][kSide][kSide] = {};
  for (std::int64_t of_group = 0; of_group < group; ++of_group) {
    const TiledHead head{{heads, first_head + of_group}};
    for (std::int64_t queries = keys; queries < heads.tiles(kTileSide); ++queries) {
      // Later queries see none of these keys either.
      if (head.first_tile<Which>(queries * kTileSide) > keys) { break; }
      const Looks looks = looks_of<Which, Chunks>(args, head, queries, keys, a, b);
      __syncthreads();
      store_parts(a, looks.p);
      multiply_columns<Order::plain>(
          head, a, b, [&](int chunk) { return head.tile(args.dy, queries, chunk, Matrix::y); },
          head.rows(queries), dv);
      __syncthreads();
      store_parts(a, looks.dscores);
      multiply_columns<Order::plain>(
          head, a, b, [&](int chunk) { return head.tile(args.qkv, queries, chunk, Matrix::q); },
          head.rows(queries), dk);
    }
  }
  const TiledHead head{{heads, first_head}};
#pragma unroll
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    head.store(args.dqkv, keys, chunk, Matrix::k, dk[chunk]);
    head.store(args.dqkv, keys, chunk, Matrix::v, dv[chunk]);
  }
}

}  // namespace

void attention_means(const AttentionBackward& args, const Heads& heads, float* means,
                     cudaStream_t stream) {
  launch(means_kernel, grid_for(heads.count * heads.seq * kWarp), stream,
         Means{args.y, args.dy, means, heads});
}

void attention_backward(const AttentionBackward& args, Stream stream) {
  const DType dtype = args.qkv.dtype;
  expects(args.y.dtype == dtype && args.dy.dtype == dtype && args.dqkv.dtype == dtype,
          "attention_backward: qkv, y, dy and dqkv are of one dtype");
  expects(args.dropout >= 0.0F && args.dropout < 1.0F, "attention_backward: dropout is in [0, 1)");
  if (cudnn_computes(args, stream)) { return cudnn_attention_backward(args, stream); }
  if (cores_compute(args.shape, args.qkv.dtype)) { return cores_attention_backward(args, stream); }
  with_chunks(kind_of(args), args.shape.head_size, [&]<Kind Which, int Chunks>() {
    const Backward backward{args.qkv,       args.log_sum_exp,
                            args.dy,        args.dqkv,
                            args.workspace, heads_of(args, {args.qkv, args.y, args.dy, args.dqkv})};
    const Heads& heads = backward.heads;
    const auto tiles_of = [&](std::int64_t count) {
      return Grid{static_cast<unsigned>(heads.tiles(kTileSide) * count), kTileThreads};
    };
    const cudaStream_t handle = cuda_stream(stream).open();
    attention_means(args, heads, args.workspace, handle);
    launch(query_kernel<Which, Chunks>, tiles_of(heads.count), handle, backward);
    launch(key_kernel<Which, Chunks>, tiles_of(heads.key_count()), handle, backward);
  });
}

}  // namespace tessera::kernels::cuda

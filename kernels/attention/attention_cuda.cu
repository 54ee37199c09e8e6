#include "kernels/attention/attention_cores.hpp"
#include "kernels/attention/attention_tiles_cuda.cuh"
#include "kernels/attention/cuda/attention_cudnn.hpp"

// A block processes a tile of query rows of a head and iterates over the keys that they attend to,
// a tile at a time. It keeps the running maximum of the scores and the running sum of exponentials,
// and rescales what it has added to y whenever the maximum changes.

namespace tessera::kernels::cuda {
namespace {

struct Forward {
  ConstValues qkv;
  Values y;
  float* log_sum_exp;
  Heads heads;
};

/// Maximum over the threads that share rows of a product: neighbours in half a warp.
__device__ float row_max(float x) {
#pragma unroll
  for (int lanes = kThreadSide / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  }
  return x;
}
__device__ float row_sum(float x) {
#pragma unroll
  for (int lanes = kThreadSide / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, lanes);
  }
  return x;
}

/// Softmax state of the rows in a thread's part.
struct Softmax {
  float max[kSide] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  ///< of the scaled scores
  float sum[kSide] = {};  ///< of the exponentials in the thread's columns, relative to max

  /// Turns row i of the scores into exp(scale * score - max), with 0 for the keys that the row does
  /// not see: `seen(key)` tells for a key of the tile. Returns the factor that rescales sums made
  /// relative to the previous maximum.
  template <class Seen>
  __device__ float add(int i, float (&scores)[kSide], float scale, Seen seen) {
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      if (seen(part_column() + j)) { most = fmaxf(most, scores[j]); }
    }
    const float before = max[i];
    max[i] = fmaxf(before, row_max(most) * scale);
    const float shift = max[i] == -INFINITY ? 0.0F : max[i];
    const float correction = expf(before - shift);
    sum[i] *= correction;
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      scores[j] = seen(part_column() + j) ? expf(fmaf(scores[j], scale, -shift)) : 0.0F;
      sum[i] += scores[j];
    }
    return correction;
  }
};

template <Kind Which, int Chunks>
__global__ void __launch_bounds__(kTileThreads, Chunks <= 2 ? 2 : 1) forward_kernel(Forward args) {
  __shared__ Tile q;
  __shared__ Tile k;
  __shared__ Tile v;
  const Heads& heads = args.heads;
  const TiledHead head{{heads, blockIdx.x % heads.count}};
  // Start with the tiles that have the most keys, so that no long tile runs last.
  const std::int64_t tile = heads.tiles(kTileSide) - 1 - blockIdx.x / heads.count;
  float y[Chunks][kSide][kSide] = {};
  Softmax softmax;

  const std::int64_t first_keys = head.first_tile<Which>(tile * kTileSide);
  for (std::int64_t keys = first_keys; keys <= tile; ++keys) {
    Part scores = {};
    const auto load = [&](int chunk) {
      // A single chunk of the queries stays loaded.
      if (Chunks > 1 || keys == first_keys) {
        load_transposed(q, head.tile(args.qkv, tile, chunk, Matrix::q));
      }
      load_transposed(k, head.tile(args.qkv, keys, chunk, Matrix::k));
    };
    multiply_rows<Chunks>(head, q, k, load, scores);
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const int row = part_row() + i;
      const int last = static_cast<int>(tile == keys ? row : kTileSide);
      const int first = head.first_seen<Which>(tile * kTileSide + row, keys * kTileSide);
      const auto seen = [&](int key) {
        return key <= last && (Which == Kind::plain || key >= first);
      };
      const float correction = softmax.add(i, scores[i], heads.scale, seen);
#pragma unroll
      for (int chunk = 0; chunk < Chunks; ++chunk) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) { y[chunk][i][j] *= correction; }
      }
      if (heads.mask.on) {
        float factors[kSide];
        head.mask(tile * kTileSide + row, keys * kTileSide + part_column(), factors);
#pragma unroll
        for (int j = 0; j < kSide; ++j) { scores[i][j] *= factors[j]; }
      }
    }
    __syncthreads();  // the keys have been read
    store_parts_transposed(k, scores);
#pragma unroll
    for (int chunk = 0; chunk < Chunks; ++chunk) {
      if (head.columns(chunk) <= 0) { break; }
      if (chunk > 0) { __syncthreads(); }
      load_rows(v, head.tile(args.qkv, keys, chunk, Matrix::v));
      __syncthreads();
      multiply<Order::exchanged>(k, v, head.rows(keys), y[chunk]);
    }
  }

#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const float sum = row_sum(softmax.sum[i]);
    const std::int64_t t = tile * kTileSide + part_row() + i;
    if (t < heads.seq && part_column() == 0) {
      args.log_sum_exp[head.row(t)] = softmax.max[i] + logf(sum);
    }
    const float inverse = 1.0F / sum;
#pragma unroll
    for (int chunk = 0; chunk < Chunks; ++chunk) {
#pragma unroll
      for (int j = 0; j < kSide; ++j) { y[chunk][i][j] *= inverse; }
    }
  }
#pragma unroll
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    head.store(args.y, tile, chunk, Matrix::y, y[chunk]);
  }
}

}  // namespace

void attention_forward(const AttentionForward& args, Stream stream) {
  expects(args.y.dtype == args.qkv.dtype, "attention_forward: qkv and y are of one dtype");
  expects(args.dropout >= 0.0F && args.dropout < 1.0F, "attention_forward: dropout is in [0, 1)");
  if (cudnn_computes(args, stream)) { return cudnn_attention_forward(args, stream); }
  if (cores_compute(args.shape, args.qkv.dtype)) { return cores_attention_forward(args, stream); }
  with_chunks(kind_of(args), args.shape.head_size, [&]<Kind Which, int Chunks>() {
    const Forward forward{args.qkv, args.y, args.log_sum_exp, heads_of(args, {args.qkv, args.y})};
    const Heads& heads = forward.heads;
    launch(forward_kernel<Which, Chunks>,
           {static_cast<unsigned>(heads.tiles(kTileSide) * heads.count), kTileThreads},
           cuda_stream(stream).open(), forward);
  });
}

}  // namespace tessera::kernels::cuda

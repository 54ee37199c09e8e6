#include "kernels/attention/attention_cores_cuda.cuh"

// A block processes some query rows of a head and iterates over the keys that they attend to. A
// warp keeps the running maximum of the scores and the running sum of exponentials of each of its
// rows, and rescales what it has added to y whenever a maximum changes.

namespace tessera::kernels::cuda {
namespace {

struct Forward {
  ConstValues qkv;
  Values y;
  float* log_sum_exp;
  Heads heads;
};

/// Maximum over the four lanes that share a row of a product.
__device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
}
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}

template <Kind Which, class T, int Size>
struct ForwardWarp {
  static constexpr int kSets = Cores<Size>::kSets;
  static constexpr int kKeys = KeySteps<Which, Size>::kKeys;
  static constexpr int kKeysAtOnce = 32;
  static constexpr int kTiles = kKeysAtOnce / 8;

  const Head& head;
  HeadWords words;
  int first_row;  ///< of the warp
  float scale;    ///< of scores, for exponentials to base 2
  [[no_unique_address]] FirstSeen<Which, 2 * kSets> seen;
  Left<kSets> q[Size / 16];
  float y[kSets][Size / 8][4] = {};
  float max[kSets][2];       ///< of the scores
  float sum[kSets][2] = {};  ///< of the exponentials in the lane's columns, relative to max

  __device__ ForwardWarp(const Head& of, int first)
      : head{of},
        words{of},
        first_row{first},
        scale{of.all.scale * kLog2E},
        seen{of, first, first + Cores<Size>::kWarpRows,
             [this](int i) { return row(i / 2, i % 2); }} {
#pragma unroll
    for (int s = 0; s < kSets; ++s) { max[s][0] = max[s][1] = -INFINITY; }
  }

  __device__ int row(int set, int half) const {
    return first_row + 16 * set + 8 * half + lane_row();
  }

  /// Adds the keys of a step, from key `first` on.
  __device__ void add(SharedAddress k, SharedAddress v, int first) {
    if (first_row >= head.all.seq) { return; }
#pragma unroll 1
    for (int at = 0; at < kKeys; at += kKeysAtOnce) {
      if (first + at >= first_row + Cores<Size>::kWarpRows) { break; }
      if (!seen.any_before(first + at + kKeysAtOnce)) { continue; }
      const SharedAddress skipped = SharedAddress{Cores<Size>::kRowBytes} * at;
      add_some(k + skipped, v + skipped, first + at);
    }
  }

  __device__ void add_some(SharedAddress k, SharedAddress v, int first) {
    float scores[kSets][kTiles][4];
    multiply_rows<T, Size>(scores, k, keys_as_columns<Size>(), 0,
                           [this](int i) -> const Left<kSets>& { return q[i]; });
    if (first + kKeysAtOnce - 1 > first_row || !seen.all_from(first)) { hide(scores, first); }
    exponentiate(scores);
    if (words.on()) { drop(scores, first); }
    const Place<Size> place = keys_as_rows<Size>();
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      add_product<T, Size>(y, narrow<T>(scores, j), v, place, 16 * j);
    }
  }

  /// Hides the keys that a row does not see.
  __device__ void hide(float (&scores)[kSets][kTiles][4], int first) const {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first + 16 * (n / 2) + 4 * lane_pair() + 2 * (n % 2) + i % 2;
          if (key > row(s, i / 2) || !seen.sees(2 * s + i / 2, key)) {
            scores[s][n][i] = -INFINITY;
          }
        }
      }
    }
  }

  __device__ void exponentiate(float (&scores)[kSets][kTiles][4]) {
    bool changes = false;
    float correction[kSets][2];
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float before = max[s][half];
        float most = before;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          most = fmaxf(most, fmaxf(scores[s][n][2 * half], scores[s][n][2 * half + 1]));
        }
        most = row_max(most);
        max[s][half] = most;
        changes = changes || most != before;
        // A row may see none of the keys so far.
        if (Which == Kind::any && most == -INFINITY) { most = 0.0F; }
        correction[s][half] = fast_exp2((before - most) * scale);
        const float shift = -most * scale;
        float more = 0.0F;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[s][n][2 * half + e];
            score = fast_exp2(fmaf(score, scale, shift));
            more += score;
          }
        }
        sum[s][half] = fmaf(sum[s][half], correction[s][half], more);
      }
    }
    if (__any_sync(0xFFFFFFFF, changes)) { rescale(correction); }
  }

  __device__ void rescale(const float (&correction)[kSets][2]) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int n = 0; n < Size / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) { y[s][n][i] *= correction[s][i / 2]; }
      }
    }
  }

  __device__ void drop(float (&scores)[kSets][kTiles][4], int first) const {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kTiles / 2; ++j) {
          bool dropped[4];
          words.dropped(row(s, half), first + 16 * j + 4 * lane_pair(), dropped);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (dropped[i]) { scores[s][2 * j + i / 2][2 * half + i % 2] = 0.0F; }
          }
        }
      }
    }
  }

  __device__ void store(const Forward& args) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float all = row_sum(sum[s][half]);
        const int t = row(s, half);
        if (t >= head.all.seq) { continue; }
        if (lane_pair() == 0) {
          args.log_sum_exp[head.row(t)] = fmaf(max[s][half], head.all.scale, logf(all));
        }
        const float factor = words.factor() / all;
        store_row<T, Size>(args.y, head, t, Matrix::y, y[s], half, factor);
      }
    }
  }
};

template <Kind Which, class T, int Size>
__global__ void __launch_bounds__(kCoresThreads, 2) forward_kernel(Forward args) {
  using Warp = ForwardWarp<Which, T, Size>;
  __shared__ Stage<> ring[KeySteps<Which, Size>::kStages];
  const Heads& heads = args.heads;
  const Head head{heads, blockIdx.x % heads.count};
  // Start with the tiles that have the most keys, so that no long tile runs last.
  const std::int64_t tile = heads.tiles(Cores<Size>::kRows) - 1 - blockIdx.x / heads.count;
  const int first_row = static_cast<int>(tile) * Cores<Size>::kRows;
  const int end = min(first_row + Cores<Size>::kRows, static_cast<int>(heads.seq));
  const KeySteps<Which, Size> steps{ring, head, args.qkv, first_row, end};
  load_rows<Size, Cores<Size>::kRows>(ring[2].at, rows_of(head, args.qkv, Matrix::q), first_row);
  close_copies();
  steps.load(0);
  steps.load(1);
  Warp warp{head, first_row + cores_warp() * Cores<Size>::kWarpRows};
  wait_for_copies<2>();
  __syncthreads();
  load_own<Size>(warp.q, ring[2].at);
  steps.run([&](SharedAddress k, SharedAddress v, int first) { warp.add(k, v, first); });
  warp.store(args);
}

}  // namespace

void cores_attention_forward(const AttentionForward& args, Stream stream) {
  const Forward forward{args.qkv, args.y, args.log_sum_exp, heads_of(args, {args.qkv, args.y})};
  const Heads& heads = forward.heads;
  with_cores(
      kind_of(args), args.qkv.dtype, args.shape.head_size, [&]<Kind Which, class T, int Size>() {
        launch(
            forward_kernel<Which, T, Size>,
            {static_cast<unsigned>(heads.tiles(Cores<Size>::kRows) * heads.count), kCoresThreads},
            cuda_stream(stream).open(), forward);
      });
}

}  // namespace tessera::kernels::cuda

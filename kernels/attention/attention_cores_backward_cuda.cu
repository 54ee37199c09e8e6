#include "kernels/attention/attention_cores_cuda.cuh"

// First the gradients of q, one block per group of query rows, then those of k and v, one block per
// group of keys, for all query heads of a key head. Both recompute the probabilities, and one warp
// sums each element, in order. A single kernel would compute a third less, but its blocks would
// have to add to dq one after another.

namespace tessera::kernels::cuda {
namespace {

struct Backward {
  ConstValues qkv;
  const float* log_sum_exp;
  ConstValues dy;
  Values dqkv;
  const float* means;  ///< indexed as log_sum_exp: sum of y * dy over each row
  Heads heads;
};

/// What is needed to compute a query row's probabilities and their gradients.
struct RowSums {
  float log_sum_exp = 0.0F;  ///< base 2
  float mean = 0.0F;

  __device__ static RowSums of(const Backward& args, const Head& head, int t) {
    if (t >= head.all.seq) { return {}; }
    return {args.log_sum_exp[head.row(t)] * kLog2E, args.means[head.row(t)]};
  }
};

template <Kind Which, class T, int Size>
struct QueryWarp {
  static constexpr int kSets = Cores<Size>::kSets;
  static constexpr int kKeys = KeySteps<Which, Size>::kKeys;
  static constexpr int kKeysAtOnce = Size == 64 ? 16 : 32;
  static constexpr int kTiles = kKeysAtOnce / 8;
  using Products = float[kSets][kTiles][4];

  const Head& head;
  HeadWords words;
  int first_row;  ///< of the warp
  float scale;    ///< of scores, for exponentials to base 2
  [[no_unique_address]] FirstSeen<Which, 2 * kSets> seen;
  RowSums sums[kSets][2];
  Left<kSets> q[Size / 16];
  Left<kSets> dy[Size / 16];
  float dq[kSets][Size / 8][4] = {};

  __device__ QueryWarp(const Backward& args, const Head& of, int first)
      : head{of},
        words{of},
        first_row{first},
        scale{of.all.scale * kLog2E},
        seen{of, first, first + Cores<Size>::kWarpRows,
             [this](int i) { return query(i / 2, i % 2); }} {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sums[s][half] = RowSums::of(args, head, query(s, half));
      }
    }
  }

  __device__ int query(int set, int half) const {
    return first_row + 16 * set + 8 * half + lane_row();
  }

  /// Adds the keys of a step, from key `first` on.
  __device__ void add(SharedAddress k, SharedAddress v, int first) {
    if (first_row >= head.all.seq) { return; }
    // The exchange of pieces in a tile repeats every 32 rows.
#pragma unroll 1
    for (int at = 0; at < kKeys; at += 32) {
      const auto skipped = static_cast<SharedAddress>(at * Cores<Size>::kRowBytes);
#pragma unroll
      for (int more = 0; more < 32; more += kKeysAtOnce) {
        if (first + at + more >= first_row + Cores<Size>::kWarpRows) { return; }
        if (!seen.any_before(first + at + more + kKeysAtOnce)) { continue; }
        add_some(k + skipped, v + skipped, more, first + at + more);
      }
    }
  }

  /// Adds the keys from `first` on, which are the rows from `row` on of both tiles.
  __device__ void add_some(SharedAddress k, SharedAddress v, int row, int first) {
    const Place<Size> columns = keys_as_columns<Size>();
    const Place<Size> rows = keys_as_rows<Size>();
    Products p;
    Products dp;
    multiply_rows<T, Size>(p, k, columns, row,
                           [this](int i) -> const Left<kSets>& { return q[i]; });
    multiply_rows<T, Size>(dp, v, columns, row,
                           [this](int i) -> const Left<kSets>& { return dy[i]; });
    differentiate(p, dp, first);
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      add_product<T, Size>(dq, narrow<T>(dp, j), k, rows, row + 16 * j);
    }
  }

  /// Replaces dp by the gradient of the scores p before scaling.
  __device__ void differentiate(Products& p, Products& dp, int first) const {
    const bool all_seen = first + kKeysAtOnce - 1 <= first_row && seen.all_from(first);
    const float factor = words.factor();
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto [log_sum_exp, mean] = sums[s][half];
#pragma unroll
        for (int j = 0; j < kTiles / 2; ++j) {
          const int key = first + 16 * j + 4 * lane_pair();
          bool dropped[4] = {};
          if (words.on()) { words.dropped(query(s, half), key, dropped); }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float score = p[s][2 * j + i / 2][2 * half + i % 2];
            float& slope = dp[s][2 * j + i / 2][2 * half + i % 2];
            const float gain = dropped[i] ? -mean : fmaf(slope, factor, -mean);
            slope = fast_exp2(fmaf(score, scale, -log_sum_exp)) * gain;
            if (!all_seen && (key + i > query(s, half) || !seen.sees(2 * s + half, key + i))) {
              slope = 0.0F;
            }
          }
        }
      }
    }
  }

  __device__ void store(const Backward& args) const {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = query(s, half);
        if (t >= head.all.seq) { continue; }
        store_row<T, Size>(args.dqkv, head, t, Matrix::q, dq[s], half, head.all.scale);
      }
    }
  }
};

template <Kind Which, class T, int Size>
__global__ void __launch_bounds__(kCoresThreads, 2) query_kernel(Backward args) {
  using Warp = QueryWarp<Which, T, Size>;
  __shared__ Stage<> ring[KeySteps<Which, Size>::kStages];
  const Heads& heads = args.heads;
  const Head head{heads, blockIdx.x % heads.count};
  // Start with the tiles that have the most keys, so that no long tile runs last.
  const std::int64_t tile = heads.tiles(Cores<Size>::kRows) - 1 - blockIdx.x / heads.count;
  const int first_row = static_cast<int>(tile) * Cores<Size>::kRows;
  const int end = min(first_row + Cores<Size>::kRows, static_cast<int>(heads.seq));
  const KeySteps<Which, Size> steps{ring, head, args.qkv, first_row, end};
  load_rows<Size, Cores<Size>::kRows>(ring[1].at, rows_of(head, args.qkv, Matrix::q), first_row);
  load_rows<Size, Cores<Size>::kRows>(ring[2].at, rows_of(head, args.dy, Matrix::y), first_row);
  close_copies();
  steps.load(0);
  Warp warp{args, head, first_row + cores_warp() * Cores<Size>::kWarpRows};
  wait_for_copies<1>();
  __syncthreads();
  load_own<Size>(warp.q, ring[1].at);
  load_own<Size>(warp.dy, ring[2].at);
  __syncthreads();
  steps.load(1);
  steps.run([&](SharedAddress k, SharedAddress v, int first) { warp.add(k, v, first); });
  warp.store(args);
}

/// Here keys are the rows of products and queries the columns.
template <Kind Which, class T, int Size>
struct KeyWarp {
  static constexpr int kSets = Cores<Size>::kSets;
  static constexpr int kQueries = kCoresStageBytes / 4 / Cores<Size>::kRowBytes;
  static constexpr int kQueriesAtOnce = 16;
  static constexpr int kTiles = kQueriesAtOnce / 8;
  using Products = float[kSets][kTiles][4];

  using Seen = FirstSeen<Which, 2 * kTiles>;

  const Heads& all;
  std::int64_t index;  ///< of the query head
  HeadWords words;
  int first_key;  ///< of the warp
  float scale;    ///< of scores, for exponentials to base 2
  float dk[kSets][Size / 8][4] = {};
  float dv[kSets][Size / 8][4] = {};

  __device__ KeyWarp(const Head& of, int first)
      : all{of.all}, index{of.index}, words{of}, first_key{first}, scale{all.scale * kLog2E} {}

  __device__ Head head() const { return {all, index}; }
  /// Continues with another query head of the same key head.
  __device__ void take(const Head& of) {
    index = of.index;
    words.take(of);
  }

  /// A lane holds neighbouring keys: four with two sets, else two.
  __device__ static int key_within(int set, int half, int row) {
    return kSets == 2 ? 4 * row + 2 * set + half : 2 * row + half;
  }
  __device__ int key(int set, int half) const {
    return first_key + key_within(set, half, lane_row());
  }
  /// The warp's keys in a block's tile, as the left factor.
  __device__ static Place<Size> keys() {
    return {cores_warp() * Cores<Size>::kWarpRows + key_within(0, matrix() % 2, matrix_row()),
            matrix() / 2};
  }

  /// Adds the queries of a step, from row `first` on.
  __device__ void add(const Backward& args, SharedAddress k, SharedAddress v, SharedAddress q,
                      SharedAddress dy, int first) {
#pragma unroll
    for (int at = 0; at < kQueries; at += kQueriesAtOnce) {
      const int row = first + at;
      if (row + kQueriesAtOnce > first_key && row < all.seq) {
        add_some(args, k, v, q, dy, at, row);
      }
    }
  }

  __device__ void add_some(const Backward& args, SharedAddress k, SharedAddress v, SharedAddress q,
                           SharedAddress dy, int at, int first) {
    const Seen seen{head(), first, first + kQueriesAtOnce,
                    [first](int i) { return query(first, i / 2, i % 2); }};
    if (!seen.any_before(first_key + Cores<Size>::kWarpRows)) { return; }
    RowSums sums[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) { sums[n][e] = RowSums::of(args, head(), query(first, n, e)); }
    }
    const Place<Size> left = keys();
    const Place<Size> columns = columns_in_order<Size>();
    const Place<Size> rows = rows_in_order<Size>();
    Products p;
    Products dp;
    multiply_rows<T, Size>(p, q, columns, at,
                           [&](int i) { return load_left<Size>(k, left, 2, 2 * i); });
    multiply_rows<T, Size>(dp, dy, columns, at,
                           [&](int i) { return load_left<Size>(v, left, 2, 2 * i); });
    differentiate(p, dp, sums, seen, first);
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      add_product<T, Size>(dv, narrow<T>(p, j), dy, rows, at + 16 * j);
      add_product<T, Size>(dk, narrow<T>(dp, j), q, rows, at + 16 * j);
    }
  }

  __device__ static int query(int first, int n, int e) {
    return first + 8 * n + 2 * lane_pair() + e;
  }

  /// Replaces the scores p by the probabilities that were not dropped, and their gradients dp by
  /// those of the scores before scaling.
  __device__ void differentiate(Products& p, Products& dp, const RowSums (&sums)[kTiles][2],
                                const Seen& seen, int first) const {
    const bool all_seen =
        first_key + Cores<Size>::kWarpRows - 1 <= first && seen.all_from(first_key);
    const float factor = words.factor();
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      bool dropped[2][2 * kSets] = {};
      if (words.on()) { draw(first, n, dropped); }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto [log_sum_exp, mean] = sums[n][e];
#pragma unroll
        for (int i = 0; i < 2 * kSets; ++i) {
          float& score = p[i / 2][n][2 * (i % 2) + e];
          float& slope = dp[i / 2][n][2 * (i % 2) + e];
          const int of = key(i / 2, i % 2);
          const bool looks = all_seen || (of <= query(first, n, e) && seen.sees(2 * n + e, of));
          const float look = looks ? fast_exp2(fmaf(score, scale, -log_sum_exp)) : 0.0F;
          const bool off = dropped[e][i];
          slope = look * (off ? -mean : fmaf(slope, factor, -mean));
          score = off ? 0.0F : look;
        }
      }
    }
  }

  /// to[e][i]: which of the lane's keys, in order, are dropped for its two queries.
  __device__ void draw(int first, int n, bool (&to)[2][2 * kSets]) const {
    if constexpr (kSets == 2) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        words.dropped(query(first, n, e), first_key + 4 * lane_row(), to[e]);
      }
    } else {
      // Lanes of neighbouring rows need each other's words, so each lane draws for one of two
      // queries.
      const int odd = lane_row() % 2;
      bool four[4];
      words.dropped(query(first, n, odd), first_key + 4 * (lane_row() / 2), four);
      unsigned own = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) { own |= (four[i] ? 1U : 0U) << i; }
      const unsigned other = __shfl_xor_sync(0xFFFFFFFF, own, 4);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const unsigned bits = (e == odd ? own : other) >> (2 * odd);
#pragma unroll
        for (int i = 0; i < 2; ++i) { to[e][i] = (bits >> i & 1U) != 0; }
      }
    }
  }

  __device__ void store(const Backward& args) const {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = key(s, half);
        if (t >= all.seq) { continue; }
        store_row<T, Size>(args.dqkv, head(), t, Matrix::k, dk[s], half, all.scale);
        store_row<T, Size>(args.dqkv, head(), t, Matrix::v, dv[s], half, words.factor());
      }
    }
  }
};

template <Kind Which, class T, int Size>
__global__ void __launch_bounds__(kCoresThreads, 2) key_kernel(Backward args) {
  using Warp = KeyWarp<Which, T, Size>;
  constexpr int kRows = Cores<Size>::kRows;
  constexpr int kStageBytes = kCoresStageBytes / 2;
  __shared__ Stage<> keys[2];
  __shared__ Stage<kStageBytes> ring[2];
  const Heads& heads = args.heads;
  const std::int64_t key_heads = Which == Kind::plain ? heads.count : heads.key_count();
  const std::int64_t group = Which == Kind::plain ? 1 : heads.group;
  const Head first_head{heads, blockIdx.x % key_heads * group};
  // The most queries attend to the first keys.
  const int first_key = static_cast<int>(blockIdx.x / key_heads) * kRows;
  load_rows<Size, kRows>(keys[0].at, rows_of(first_head, args.qkv, Matrix::k), first_key);
  load_rows<Size, kRows>(keys[1].at, rows_of(first_head, args.qkv, Matrix::v), first_key);
  Warp warp{first_head, first_key + cores_warp() * Cores<Size>::kWarpRows};
  for (std::int64_t of_group = 0; of_group < group; ++of_group) {
    const Head head{heads, first_head.index + of_group};
    if (of_group > 0) {
      warp.take(head);
      __syncthreads();  // all threads have read the tiles of the last head
    }
    const HeadRows q = rows_of(head, args.qkv, Matrix::q);
    const HeadRows dy = rows_of(head, args.dy, Matrix::y);
    // If a query sees none of the block's keys, neither do later ones.
    const auto sees_some = [&](int first) {
      return first < heads.seq &&
             (Which == Kind::plain || head.first_key(first) < first_key + kRows);
    };
    const auto load = [&](int first) {
      std::byte* const stage = ring[first / Warp::kQueries % 2].at;
      if (sees_some(first)) {
        load_rows<Size, Warp::kQueries>(stage, q, first);
        load_rows<Size, Warp::kQueries>(stage + kStageBytes / 2, dy, first);
      }
      close_copies();
    };
    load(first_key);
    for (int first = first_key; sees_some(first); first += Warp::kQueries) {
      wait_for_copies<0>();
      __syncthreads();  // all threads have read the tiles that the next load overwrites
      load(first + Warp::kQueries);
      const SharedAddress stage = shared_address(ring[first / Warp::kQueries % 2].at);
      warp.add(args, shared_address(keys[0].at), shared_address(keys[1].at), stage,
               stage + kStageBytes / 2, first);
    }
  }
  warp.store(args);
}

}  // namespace

void cores_attention_backward(const AttentionBackward& args, Stream stream) {
  const Backward backward{args.qkv,       args.log_sum_exp,
                          args.dy,        args.dqkv,
                          args.workspace, heads_of(args, {args.qkv, args.dy, args.dqkv})};
  const Heads& heads = backward.heads;
  const cudaStream_t handle = cuda_stream(stream).open();
  attention_means(args, heads, args.workspace, handle);
  with_cores(kind_of(args), args.qkv.dtype, args.shape.head_size,
             [&]<Kind Which, class T, int Size>() {
               const auto grid_of = [&](std::int64_t count) {
                 return Grid{static_cast<unsigned>(heads.tiles(Cores<Size>::kRows) * count),
                             kCoresThreads};
               };
               launch(query_kernel<Which, T, Size>, grid_of(heads.count), handle, backward);
               launch(key_kernel<Which, T, Size>, grid_of(heads.key_count()), handle, backward);
             });
}

}  // namespace tessera::kernels::cuda

#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "device/cuda/cuda_dynamic_shared.cuh"
#include "kernels/support/cuda/cuda_column_sum.cuh"
#include "kernels/support/cuda/cuda_rows.cuh"
#include "kernels/support/row_groups.hpp"
#include "tessera/kernels/write.hpp"

// The backward pass of a normalisation of rows, in one read of x and dy: it computes the sums of a
// row that dx needs, and the sums of the columns that are the parameters' gradients. It reads x, dy
// and dx once and writes dx once.
//
// A warp processes a row, or a block if a warp's registers cannot hold it. A thread issues all its
// loads of the row - x, dy and the old dx - before it waits for any, and keeps them in their dtype;
// it keeps its columns' sums in registers over all rows of its block. Rows that exceed a block's
// registers are read twice (norm_long_rows).
namespace tessera::kernels::cuda {

/// What is subtracted from a row before it is scaled: its mean (layer norm), or nothing (RMS norm).
enum class Centring : std::uint8_t { none, mean };

/// Sums per column: the weight's gradient, and the bias's if there is one.
template <Centring centring>
inline constexpr int kNormSums = centring == Centring::mean ? 2 : 1;

/// Rows that lie in groups, for RMS norm.
struct NormGroups {
  std::int64_t size = 1;
  std::int64_t x_elems = 0;  ///< from one group of x to the next
  std::int64_t dy_elems = 0;
  std::int64_t dx_elems = 0;
};

template <class T>
struct NormBackward {
  const T* x;
  ConstValues weight;
  const float* mean;   ///< null: no centring
  const float* scale;  ///< of each row
  const T* dy;
  T* dx;
  std::int64_t rows;
  std::int64_t columns;
  Access access;
  Write dx_write = Write::add;
  NormGroups groups = {};  ///< not for layer norm, whose rows have no gaps
  // Set by norm_backward.
  double inverse_columns = 0.0;
  int group = 0;       ///< threads per row
  ColumnCut chunks{};  ///< one per block; without partials no column sums are requested
};

/// Factors of a row: the mean and scale that normalise x, and the means that dx subtracts.
struct RowFactors {
  float mean = 0.0F;
  float scale = 0.0F;
  float dnormal = 0.0F;  ///< mean of dnormal: subtracted because the mean depends on x
  float scaled = 0.0F;   ///< mean of dnormal * normal: subtracted because the scale depends on x
};

/// Where the rows of x, dy and dx begin.
struct NormRow {
  std::int64_t x;
  std::int64_t dy;
  std::int64_t dx;
};
/// `columns` are args.columns: a kernel that has them in 32 bits saves registers.
template <Centring centring, class T, class Columns>
__device__ inline NormRow norm_row(const NormBackward<T>& args, std::int64_t row, Columns columns) {
  if constexpr (centring == Centring::mean) {
    const std::int64_t begin = row * columns;
    return {begin, begin, begin};
  } else {
    const GroupedRow in_group = GroupedRow::of(row, args.groups.size);
    return {in_group.begin(args.groups.x_elems, columns),
            in_group.begin(args.groups.dy_elems, columns),
            in_group.begin(args.groups.dx_elems, columns)};
  }
}

template <Centring centring>
__device__ inline float normal_of(float x, const RowFactors& row) {
  return centring == Centring::mean ? (x - row.mean) * row.scale : x * row.scale;
}
/// The new dx, given the old one, `before`, or 0.
template <Centring centring>
__device__ inline float dx_after(float before, float normal, float dnormal, const RowFactors& row) {
  const float centred = centring == Centring::mean ? dnormal - row.dnormal : dnormal;
  return fmaf(row.scale, fmaf(-normal, row.scaled, centred), before);
}
/// Adds an element's terms to its column's sums; `sums` is [kNormSums][Stride].
template <Centring centring, int Stride>
__device__ inline void add_gradients(float dy, float normal, float* sums) {
  sums[0] = fmaf(dy, normal, sums[0]);
  if constexpr (centring == Centring::mean) { sums[Stride] += dy; }
}
template <Centring centring, class T>
__device__ inline RowFactors row_factors(const NormBackward<T>& args, std::int64_t row) {
  return {centring == Centring::mean ? args.mean[row] : 0.0F, args.scale[row]};
}

/// Elements of a row in a thread's registers: there are two counts to choose from, so that few
/// lanes are idle.
inline constexpr int kFewNormElems = 24;
inline constexpr int kMoreNormElems = 32;
inline constexpr int kMostNormWarps = 8;  // per row
inline constexpr int kNormWarps = 4;      // per block, if a row takes fewer

// Threads of all blocks together: as many as a GPU of 132 multiprocessors holds at once. The number
// is constant, so that every GPU adds in the same order. The partial sums then take at most 16 MiB.
inline constexpr std::int64_t kNormGridThreads = 65536;
inline constexpr std::int64_t kNormChunkRows = 32;  // at least, for each set of partial sums

/// How rows of some length are distributed over threads.
struct NormShape {
  int elems;  ///< per thread; 0: the rows are too long
  int warps;  ///< per row
  int rows;   ///< per block at once

  [[nodiscard]] int threads() const { return warps * rows * kWarp; }
  /// Elements that fit into the registers of a row's threads.
  [[nodiscard]] int room() const { return elems * warps * kWarp; }
  /// Room for the weight, and later for the column sums of all the block's rows but the first.
  [[nodiscard]] unsigned shared_bytes() const {
    return static_cast<unsigned>(std::max(rows - 1, 1) * room()) * sizeof(float);
  }
};

[[nodiscard]] inline NormShape norm_shape(std::int64_t columns) {
  const auto warps = [&](int elems) {
    return ceil_div<std::int64_t>(columns, std::int64_t{kWarp} * elems);
  };
  const std::int64_t few = warps(kFewNormElems);
  const std::int64_t more = warps(kMoreNormElems);
  const int elems = few * kFewNormElems <= more * kMoreNormElems && few <= kMostNormWarps
                        ? kFewNormElems
                        : kMoreNormElems;
  const std::int64_t of_row = elems == kFewNormElems ? few : more;
  if (of_row > kMostNormWarps) { return {}; }
  const int count = static_cast<int>(of_row);
  return {elems, count, std::max(kNormWarps / count, 1)};
}

/// Numbers of a row's threads in shared memory, N per pack, stored four neighbours at a time to
/// avoid bank conflicts.
template <int N>
struct SharedRow {
  float* at;
  int index;
  int group;

  [[nodiscard]] __device__ float4* four(int k, int j) const {
    return reinterpret_cast<float4*>(at) + std::int64_t{k * (N / 4) + j / 4} * group + index;
  }
  __device__ void read(int k, float (&to)[N]) const {
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      const float4 some = *four(k, j);
      to[j] = some.x;
      to[j + 1] = some.y;
      to[j + 2] = some.z;
      to[j + 3] = some.w;
    }
  }
  __device__ void write(int k, const float* from) const {
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      *four(k, j) = {from[j], from[j + 1], from[j + 2], from[j + 3]};
    }
  }
};

/// Computes the means of two sums over a row's threads, and leaves them in all of them. Called by
/// all threads of a block, whose rows have `group` threads each.
struct RowMeans {
  double (&shared)[2][2][kMostNormWarps];  ///< sums of the block's warps, for alternating calls
  int group;
  double inverse_columns;
  int turn = 0;

  __device__ void operator()(float first, float second, RowFactors& row) {
    double a = warp_sum(static_cast<double>(first));
    double b = warp_sum(static_cast<double>(second));
    if (group > kWarp) {
      const int warp = static_cast<int>(threadIdx.x) / kWarp;
      if (threadIdx.x % kWarp == 0) {
        shared[turn][0][warp] = a;
        shared[turn][1][warp] = b;
      }
      __syncthreads();
      const int warps = group / kWarp;
      a = b = 0.0;
      for (int w = warp / warps * warps; w < (warp / warps + 1) * warps; ++w) {
        a += shared[turn][0][w];
        b += shared[turn][1][w];
      }
      turn = 1 - turn;
    }
    row.dnormal = static_cast<float>(a * inverse_columns);
    row.scaled = static_cast<float>(b * inverse_columns);
  }
};

/// The most registers per thread that let a multiprocessor hold 16 warps, or 12, or 8.
template <Centring centring, class T, int Elems>
inline constexpr int kNormRegisters = sizeof(T) == 4                      ? 255
                                      : kNormSums<centring> * Elems <= 48 ? 128
                                                                          : 168;

template <Centring centring, class T, int Elems>
__global__ void __maxnreg__((kNormRegisters<centring, T, Elems>))
    norm_backward_kernel(NormBackward<T> args) {
  using Row = Held<T, Elems>;
  constexpr int N = Row::N;
  constexpr int K = kNormSums<centring>;
  __shared__ double shared_means[2][2][kMostNormWarps];
  auto* const given = static_cast<float*>(tessera::cuda::dynamic_shared());
  const int group = args.group;
  const int index = static_cast<int>(threadIdx.x) % group;
  const int own = static_cast<int>(threadIdx.x) / group;  // index among the block's rows
  const int rows = static_cast<int>(blockDim.x) / group;
  const int columns = static_cast<int>(args.columns);  // at most what a block's registers hold
  const auto column = [&](int k) { return N * (index + k * group); };

  const SharedRow<N> weights{given, index, group};
  for (int k = own; k < Row::kPacks; k += rows) {
    float some[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int c = column(k) + j;
      some[j] = c < columns ? load_one(args.weight.data, args.weight.dtype, c) : 0.0F;
    }
    weights.write(k, some);
  }
  __syncthreads();

  const std::int64_t first = blockIdx.x * args.chunks.chunk_rows;
  const std::int64_t last =
      first + args.chunks.chunk_rows < args.rows ? first + args.chunks.chunk_rows : args.rows;
  RowMeans means{shared_means, group, args.inverse_columns};
  float sums[K * Elems] = {};
  for (std::int64_t base = first; base < last; base += rows) {
    const std::int64_t r = base + own;
    const int count = r < last ? columns : 0;  // no row: waits with the others
    const NormRow at = norm_row<centring>(args, r, columns);
    Row x;
    Row dy;
    Row dx;
    x.load(args.x + at.x, args.access, count, index, group);
    dy.load(args.dy + at.dy, args.access, count, index, group);
    if (centring == Centring::none && args.dx_write == Write::overwrite) {
      dx = {};
    } else {
      dx.load(args.dx + at.dx, args.access, count, index, group);
    }
    RowFactors row;
    if (r < last) { row = row_factors<centring>(args, r); }

    float sum = 0.0F;
    float scaled = 0.0F;
#pragma unroll
    for (int k = 0; k < Row::kPacks; ++k) {
      if (N * k * group >= columns) { break; }  // the same for all threads
      float normal[N];
      float gradient[N];
      float weight[N];
      x.floats(k, normal);
      dy.floats(k, gradient);
      weights.read(k, weight);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        normal[j] = normal_of<centring>(normal[j], row);
        add_gradients<centring, Elems>(gradient[j], normal[j], sums + k * N + j);
        const float dnormal = gradient[j] * weight[j];
        if constexpr (centring == Centring::mean) { sum += dnormal; }
        scaled = fmaf(dnormal, normal[j], scaled);
      }
    }
    means(sum, scaled, row);
    x.forget_floats();
    dy.forget_floats();
#pragma unroll
    for (int k = 0; k < Row::kPacks; ++k) {
      if (N * k * group >= columns) { break; }  // the same for all threads
      float normal[N];
      float gradient[N];
      float weight[N];
      float all[N];
      x.floats(k, normal);
      dy.floats(k, gradient);
      dx.floats(k, all);
      weights.read(k, weight);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        normal[j] = normal_of<centring>(normal[j], row);
        all[j] = dx_after<centring>(all[j], normal[j], gradient[j] * weight[j], row);
      }
      if (column(k) < count) {
        store_floats(args.dx + at.dx + column(k), args.access, count - column(k), all);
      }
    }
  }

  if (args.chunks.partials == nullptr) { return; }
#pragma unroll
  for (int s = 0; s < K; ++s) {
    if (rows > 1) {
      __syncthreads();  // nothing in it is needed any more
      const SharedRow<N> others{given + std::int64_t{own - 1} * group * Elems, index, group};
#pragma unroll
      for (int k = 0; k < Row::kPacks; ++k) {
        if (own > 0) { others.write(k, sums + s * Elems + k * N); }
      }
      __syncthreads();
    }
    if (own > 0) { continue; }
    float* const to =
        args.chunks.partials + (s * args.chunks.chunks + blockIdx.x) * args.chunks.columns;
#pragma unroll
    for (int k = 0; k < Row::kPacks; ++k) {
      float all[N];
#pragma unroll
      for (int j = 0; j < N; ++j) { all[j] = sums[s * Elems + k * N + j]; }
      for (int other = 1; other < rows; ++other) {
        float some[N];
        SharedRow<N>{given + std::int64_t{other - 1} * group * Elems, index, group}.read(k, some);
#pragma unroll
        for (int j = 0; j < N; ++j) { all[j] += some[j]; }
      }
      if (column(k) < columns) {
        store_floats(to + column(k), args.access, columns - column(k), all);
      }
    }
  }
}

/// Computes the means that dx needs for rows that exceed a block's registers, one block per row.
template <Centring centring, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    row_means_kernel(NormBackward<T> args, const float* weight, float2* means) {
  constexpr int N = kPack<T>;
  __shared__ double shared[kMostWarps];
  const std::int64_t columns = args.columns;
  for (std::int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
    const RowFactors row = row_factors<centring>(args, r);
    const NormRow at = norm_row<centring>(args, r, columns);
    float sum = 0.0F;
    float scaled = 0.0F;
    for (auto c = std::int64_t{threadIdx.x} * N; c < columns; c += std::int64_t{blockDim.x} * N) {
      float x[N];
      float dy[N];
      float weights[N];
      load_floats(args.x + at.x + c, args.access, columns - c, x);
      load_floats(args.dy + at.dy + c, args.access, columns - c, dy);
      load_floats(weight + c, args.access, columns - c, weights);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float dnormal = dy[j] * weights[j];
        sum += dnormal;
        scaled = fmaf(dnormal, normal_of<centring>(x[j], row), scaled);
      }
    }
    const double all = block_sum(static_cast<double>(sum), shared);
    const double all_scaled = block_sum(static_cast<double>(scaled), shared);
    if (threadIdx.x == 0) {
      means[r] = {static_cast<float>(all * args.inverse_columns),
                  static_cast<float>(all_scaled * args.inverse_columns)};
    }
  }
}

/// The second read of such rows: computes dx and the column sums (add_column_sums).
template <Centring centring, class T>
struct LongRows {
  static constexpr int kSums = kNormSums<centring>;
  static constexpr int kColumns = kPack<T>;

  NormBackward<T> args;
  const float* weight;
  const float2* means;

  __device__ void add(std::int64_t r, std::int64_t column, float (&sums)[kSums * kColumns]) const {
    const NormRow at = norm_row<centring>(args, r, args.columns);
    const std::int64_t count = args.columns - column;
    RowFactors row = row_factors<centring>(args, r);
    row.dnormal = means[r].x;
    row.scaled = means[r].y;
    float x[kColumns];
    float dy[kColumns];
    float dx[kColumns] = {};
    float weights[kColumns];
    load_floats(args.x + at.x + column, args.access, count, x);
    load_floats(args.dy + at.dy + column, args.access, count, dy);
    if (centring == Centring::mean || args.dx_write == Write::add) {
      load_floats(args.dx + at.dx + column, args.access, count, dx);
    }
    load_floats(weight + column, args.access, count, weights);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float normal = normal_of<centring>(x[j], row);
      add_gradients<centring, kColumns>(dy[j], normal, sums + j);
      dx[j] = dx_after<centring>(dx[j], normal, dy[j] * weights[j], row);
    }
    store_floats(args.dx + at.dx + column, args.access, count, dx);
  }
};

template <Centring centring, class T>
void norm_long_rows(NormBackward<T> args, const ColumnSums<kNormSums<centring>>& to,
                    Stream stream) {
  WorkspaceCut workspace{stream};
  float2* const means = workspace.take<float2>(args.rows);
  const ConstValues weight = in_fp32(args.weight, args.columns, workspace, stream);
  if (reinterpret_cast<std::uintptr_t>(weight.data) % 16 != 0) { args.access = Access::singles; }
  launch(row_means_kernel<centring, T>, grid_for(args.rows * kMostRowThreads, kMostRowThreads),
         cuda_stream(stream).open(), args, weight.as<float>(), means);
  add_column_sums(LongRows<centring, T>{args, weight.as<float>(), means}, to, args.rows,
                  args.columns, workspace, stream);
}

/// Adds to dx, and adds to or overwrites to[0] and to[1], the gradients of the weight and the bias
/// (null: not requested).
template <Centring centring, class T>
void norm_backward(NormBackward<T> args, const ColumnSums<kNormSums<centring>>& to, Stream stream) {
  if (args.rows == 0) {  // sums to overwrite become zero
    return add_column_sums(LongRows<centring, T>{args, nullptr, nullptr}, to, 0, args.columns,
                           WorkspaceCut{stream}, stream);
  }
  args.inverse_columns = 1.0 / static_cast<double>(args.columns);
  const NormShape shape = norm_shape(args.columns);
  if (shape.elems == 0) { return norm_long_rows<centring>(args, to, stream); }
  const std::int64_t most =
      std::min(kNormGridThreads / shape.threads(), ceil_div(args.rows, kNormChunkRows));
  const std::int64_t chunk_rows =
      ceil_div<std::int64_t>(ceil_div(args.rows, most), shape.rows) * shape.rows;
  const std::int64_t chunks = ceil_div(args.rows, chunk_rows);
  const bool wanted = std::any_of(std::begin(to.at), std::end(to.at),
                                  [](const Values& sums) { return sums.data != nullptr; });
  WorkspaceCut workspace{stream};
  args.group = shape.warps * kWarp;
  args.chunks = {0, args.columns, args.rows, chunks, chunk_rows, nullptr};
  if (wanted) {
    args.chunks.partials = workspace.take<float>(kNormSums<centring> * chunks * args.columns);
  }
  const auto kernel = shape.elems == kFewNormElems
                          ? norm_backward_kernel<centring, T, kFewNormElems>
                          : norm_backward_kernel<centring, T, kMoreNormElems>;
  launch(kernel,
         Grid{.blocks = static_cast<unsigned>(chunks),
              .threads = static_cast<unsigned>(shape.threads()),
              .shared_bytes = shape.shared_bytes()},
         cuda_stream(stream).open(), args);
  if (wanted) { add_partials(to, args.chunks, stream); }
}

}  // namespace tessera::kernels::cuda

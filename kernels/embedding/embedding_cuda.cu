#include <algorithm>

#include "kernels/embedding/embedding.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_sort.hpp"
#include "kernels/support/position_of.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockWarps = kThreads / kWarp;
constexpr int kTogether = 8;  // rows in flight at once before they are added

__device__ std::int64_t first_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kBlockWarps + threadIdx.x / kWarp;
}
__device__ std::int64_t warp_stride() {
  return static_cast<std::int64_t>(gridDim.x) * kBlockWarps;
}
__device__ int lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
/// A grid with a warp for each of `items`.
Grid warp_grid(std::int64_t items) {
  return grid_for(items * kWarp, kThreads);
}

unsigned blocks_across(std::int64_t columns, std::int64_t of_a_block) {
  return static_cast<unsigned>(ceil_div(columns, of_a_block));
}

template <class Table, class Y>
struct Forward {
  const std::int32_t* tokens;
  const Table* token_table;
  const Table* position_table;
  Y* y;
  std::int64_t rows;
  std::int64_t seq;
  std::int64_t hidden;
  TokenRows table;
  const std::int32_t* first_key;
  Access access;
};

// One warp per row.
template <class Table, class Y>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<Table, Y> args) {
  constexpr int N = kPackOf<Table, Y>;
  for (std::int64_t at = first_warp(); at < args.rows; at += warp_stride()) {
    const std::int64_t row = args.table.row_of(args.tokens[at]);
    const Table* const token = args.token_table + (row < 0 ? 0 : row) * args.hidden;
    const Table* const position =
        args.position_table + position_of(args.first_key, at, at % args.seq) * args.hidden;
    Y* const y = args.y + at * args.hidden;
    for (std::int64_t c = std::int64_t{lane()} * N; c < args.hidden; c += std::int64_t{kWarp} * N) {
      const std::int64_t count = args.hidden - c;
      float sum[N] = {};
      float other[N];
      if (row >= 0) { load_floats(token + c, args.access, count, sum); }
      if (args.position_table != nullptr) {
        load_floats(position + c, args.access, count, other);
#pragma unroll
        for (int j = 0; j < N; ++j) { sum[j] += other[j]; }
      }
      store_floats(y + c, args.access, count, sum);
    }
  }
}

/// A table's gradient, whose dtype is a run-time argument.
struct Table {
  Values data;
  Access access;

  template <int N>
  __device__ void load(std::int64_t i, std::int64_t count, float (&to)[N]) const {
    of_type([&](auto* elems) { load_floats(elems + i, access, count, to); });
  }
  template <int N>
  __device__ void store(std::int64_t i, std::int64_t count, const float (&from)[N]) const {
    of_type([&](auto* elems) { store_floats(elems + i, access, count, from); });
  }
  /// Calls body(elements) with the elements as their type.
  template <class Body>
  __device__ void of_type(Body body) const {
    if (data.dtype == DType::fp32) {
      body(static_cast<float*>(data.data));
    } else if (data.dtype == DType::bf16) {
      body(static_cast<__nv_bfloat16*>(data.data));
    } else {
      body(static_cast<__half*>(data.data));
    }
  }
};

template <class Dy>
struct Backward {
  const Dy* dy;
  Table table;
  std::int64_t hidden;
  TokenRows tokens;
};

/// The sum rounded to a table's dtype.
template <class T>
__device__ float add_rounded(float sum, float x) {
  return to_float(from_float<T>(sum + x));
}

/// Adds `rows` rows of dy to the elements [column, column + N) of row `to` of the table, in order:
/// row_of(i) is the index in dy of the i-th row.
template <int N, class Dy, class RowOf>
__device__ void add_rows(const Backward<Dy>& args, std::int64_t to, std::int64_t rows,
                         std::int64_t column, RowOf row_of) {
  const std::int64_t count = args.hidden - column;
  float sum[N];
  args.table.load(to * args.hidden + column, count, sum);
  for (std::int64_t first = 0; first < rows; first += kTogether) {
    float some[kTogether][N];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const std::int64_t row = row_of(first + i < rows ? first + i : rows - 1);
      load_floats(args.dy + row * args.hidden + column, args.table.access, count, some[i]);
    }
    args.table.of_type([&]<class T>(T*) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < rows) {
#pragma unroll
          for (int j = 0; j < N; ++j) { sum[j] = add_rounded<T>(sum[j], some[i][j]); }
        }
      }
    });
  }
  args.table.store(to * args.hidden + column, count, sum);
}

// Some tokens occur thousands of times, and their rows are added one after another. A single warp
// would wait for memory every few rows. So a block takes each run of more than kStageRows rows: its
// threads read kStageRows rows of a few columns at once, while two warps add the rows that were
// read before.
constexpr int kStageRows = 128;
constexpr int kStageColumns = 64;

/// Length of the run of equal tokens that starts at `first`, counted up to kStageRows + 1. Called
/// by whole warps.
__device__ std::int64_t short_run(const std::int32_t* tokens, std::int64_t first,
                                  std::int64_t elems) {
  const std::int32_t token = tokens[first];
  for (std::int64_t rows = 0; rows <= kStageRows; rows += kWarp) {
    const std::int64_t at = first + rows + lane();
    const int count = warp_sum(at < elems && tokens[at] == token ? 1 : 0);
    if (count < kWarp) { return rows + count; }
  }
  return kStageRows + 1;
}

// One warp per distinct token, at the start of its run in `sorted`, and some columns.
template <class Dy>
__global__ void __launch_bounds__(kThreads)
    token_kernel(Backward<Dy> args, SortedTokens sorted, std::int64_t elems) {
  constexpr int N = kPack<Dy>;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWarp + lane()) * N;
  for (std::int64_t first = first_warp(); first < elems; first += warp_stride()) {
    const std::int32_t token = sorted.tokens[first];
    if (first > 0 && sorted.tokens[first - 1] == token) { continue; }
    const std::int64_t to = args.tokens.row_of(token);
    if (to < 0) { continue; }
    const std::int64_t rows = short_run(sorted.tokens, first, elems);
    if (rows <= kStageRows && column < args.hidden) {
      add_rows<N>(args, to, rows, column,
                  [&](std::int64_t i) { return std::int64_t{sorted.positions[first + i]}; });
    }
  }
}

/// The first index in [0, elems) at which the ascending `tokens` are at least `token`.
__device__ std::int64_t lower_bound(const std::int32_t* tokens, std::int64_t elems,
                                    std::int64_t token) {
  std::int64_t first = 0;
  for (std::int64_t last = elems; first < last;) {
    const std::int64_t middle = (first + last) / 2;
    if (tokens[middle] < token) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

template <class Dy>
struct alignas(16) Stage {
  Dy at[kStageRows][kStageColumns];
};

/// A thread's part of a stage: some packs of the stage's kStageRows rows of kStageColumns columns.
template <class Dy>
struct StagePart {
  static constexpr int N = kPack<Dy>;
  static constexpr int kAcross = kStageColumns / N;
  static constexpr int kPacks = kStageRows * kAcross / kThreads;
  Pack<Dy, N> packs[kPacks];

  static __device__ int row(int k) {
    return (static_cast<int>(threadIdx.x) + k * kThreads) / kAcross;
  }
  static __device__ int column() { return static_cast<int>(threadIdx.x) % kAcross * N; }

  /// Loads the rows that `positions` lists, at most `rows`, from `first_column` on.
  __device__ void load(const Backward<Dy>& args, const std::int32_t* positions, std::int64_t rows,
                       std::int64_t first_column) {
    const std::int64_t at = first_column + column();
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (row(k) >= rows || at >= args.hidden) { continue; }
      const Dy* const from = args.dy + positions[row(k)] * args.hidden + at;
      if (args.table.access == Access::packs) {
        packs[k] = load_pack<N>(from);
      } else {
        for (int j = 0; j < N && at + j < args.hidden; ++j) { packs[k].at[j] = from[j]; }
      }
    }
  }
  __device__ void store(Stage<Dy>& to) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) { store_pack(&to.at[row(k)][column()], packs[k]); }
  }
};

// Block x takes the run at index x * kStageRows of `sorted` if it is long and covers no earlier
// multiple of kStageRows: every long run covers at least one multiple.
template <class Dy>
__global__ void __launch_bounds__(kThreads)
    long_run_kernel(Backward<Dy> args, SortedTokens sorted, std::int64_t elems) {
  __shared__ Stage<Dy> stage;
  const std::int64_t here = static_cast<std::int64_t>(blockIdx.x) * kStageRows;
  const std::int64_t token = sorted.tokens[here];
  if (here > 0 && sorted.tokens[here - kStageRows] == token) { return; }
  const std::int64_t to = args.tokens.row_of(token);
  if (to < 0) { return; }
  const std::int64_t first = lower_bound(sorted.tokens, elems, token);
  const std::int64_t rows = lower_bound(sorted.tokens, elems, token + 1) - first;
  if (rows <= kStageRows) { return; }

  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.y) * kStageColumns;
  const std::int64_t column = first_column + threadIdx.x;
  const bool adds = threadIdx.x < kStageColumns && column < args.hidden;
  const std::int64_t at = to * args.hidden + column;
  float sum[1] = {};
  if (adds) { args.table.load(at, 1, sum); }
  StagePart<Dy> part{};
  part.load(args, sorted.positions + first, rows, first_column);
  for (std::int64_t done = 0; done < rows; done += kStageRows) {
    __syncthreads();  // all threads have added the previous stage
    part.store(stage);
    __syncthreads();
    const std::int64_t next = done + kStageRows;
    part.load(args, sorted.positions + first + next, rows - next, first_column);
    if (adds) {
      const auto count = static_cast<int>(rows < next ? rows - done : kStageRows);
      args.table.of_type([&]<class T>(T*) {
#pragma unroll 8
        for (int r = 0; r < count; ++r) {
          sum[0] = add_rounded<T>(sum[0], to_float(stage.at[r][threadIdx.x]));
        }
      });
    }
  }
  if (adds) { args.table.store(at, 1, sum); }
}

// A thread takes some columns of a position.
template <class Dy>
__global__ void __launch_bounds__(kThreads)
    position_kernel(Backward<Dy> args, std::int64_t batch, std::int64_t seq) {
  constexpr int N = kPack<Dy>;
  const std::int64_t packs = (args.hidden + N - 1) / N;
  for (std::int64_t i = first_index(); i < seq * packs; i += index_stride()) {
    const std::int64_t t = i / packs;
    add_rows<N>(args, t, batch, i % packs * N, [&](std::int64_t b) { return b * seq + t; });
  }
}

/// The positions within their documents of the tokens from row `first` on.
__global__ void __launch_bounds__(kThreads)
    document_positions_kernel(const std::int32_t* first_key, std::int64_t seq, std::int64_t first,
                              std::int64_t elems, std::int32_t* positions) {
  for (std::int64_t i = first_index(); i < elems; i += index_stride()) {
    const std::int64_t row = first + i;
    positions[i] = static_cast<std::int32_t>(position_of(first_key, row, row % seq));
  }
}

template <class Dy>
Backward<Dy> backward_of(const EmbeddingBackward& args, Values table) {
  return {args.dy.as<Dy>(),
          {table, access_of(kPack<Dy>, args.hidden, {args.dy, table})},
          args.hidden,
          {args.first_token, args.table_tokens}};
}

// Rows are sorted in pieces that fit into the workspace, one after another: the rows of a token are
// still added in order. sort(first, elems): those of rows [first, first + elems).
template <class Dy, class Sort>
void add_sorted(Backward<Dy> backward, std::int64_t rows, Stream stream, const Sort& sort) {
  const std::int64_t most = most_sorted(stream);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t elems = std::min(most, rows - first);
    const SortedTokens sorted = sort(first, elems);
    Grid grid = warp_grid(elems);
    grid.blocks_y = blocks_across(backward.hidden, kPack<Dy> * kWarp);
    launch(token_kernel<Dy>, grid, cuda_stream(stream).open(), backward, sorted, elems);
    if (elems > kStageRows) {
      const Grid stages{static_cast<unsigned>(ceil_div<std::int64_t>(elems, kStageRows)), kThreads,
                        blocks_across(backward.hidden, kStageColumns)};
      launch(long_run_kernel<Dy>, stages, cuda_stream(stream).open(), backward, sorted, elems);
    }
    backward.dy += elems * backward.hidden;
  }
}

template <class Dy>
void add_tokens(const EmbeddingBackward& args, Stream stream) {
  add_sorted(backward_of<Dy>(args, args.dtoken_table), args.batch * args.seq, stream,
             [&](std::int64_t first, std::int64_t elems) {
               WorkspaceCut workspace{stream};
               return sort_by_token(args.tokens + first, elems, workspace, stream);
             });
}

// Where positions begin anew with each document, they are sorted as tokens are.
template <class Dy>
void add_positions(const EmbeddingBackward& args, Stream stream) {
  Backward<Dy> backward = backward_of<Dy>(args, args.dposition_table);
  if (args.first_key == nullptr) {
    launch(position_kernel<Dy>,
           grid_for(args.seq * ceil_div(args.hidden, std::int64_t{kPack<Dy>}), kThreads),
           cuda_stream(stream).open(), backward, args.batch, args.seq);
    return;
  }
  backward.tokens = {0, -1};
  add_sorted(backward, args.batch * args.seq, stream, [&](std::int64_t first, std::int64_t elems) {
    WorkspaceCut workspace{stream};
    auto* const positions = workspace.take<std::int32_t>(elems);
    launch(document_positions_kernel, grid_for(elems, kThreads), cuda_stream(stream).open(),
           args.first_key, args.seq, first, elems, positions);
    return sort_by_token(positions, elems, workspace, stream);
  });
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, Stream stream) {
  expects(!args.position_table || args.token_table.dtype == args.position_table.dtype,
          "embedding_forward: both tables are of one dtype");
  with_device_types(args.token_table.dtype, args.y.dtype,
                    [&]<class Table, class Y>(std::type_identity<Table>, std::type_identity<Y>) {
                      const std::int64_t rows = args.batch * args.seq;
                      const Access access =
                          access_of(kPackOf<Table, Y>, args.hidden,
                                    {args.token_table, args.position_table, args.y});
                      launch(forward_kernel<Table, Y>, warp_grid(rows), cuda_stream(stream).open(),
                             Forward<Table, Y>{args.tokens,
                                               args.token_table.as<Table>(),
                                               args.position_table.as<Table>(),
                                               args.y.as<Y>(),
                                               rows,
                                               args.seq,
                                               args.hidden,
                                               {args.first_token, args.table_tokens},
                                               args.first_key,
                                               access});
                    });
}

void embedding_backward(const EmbeddingBackward& args, Stream stream) {
  const Values table = args.dtoken_table ? args.dtoken_table : args.dposition_table;
  expects(!args.dposition_table || args.dposition_table.dtype == table.dtype,
          "embedding_backward: both gradients are of one dtype");
  with_device_type(args.dy.dtype, [&]<class Dy>(std::type_identity<Dy>) {
    if (args.dtoken_table) { add_tokens<Dy>(args, stream); }
    if (args.dposition_table) { add_positions<Dy>(args, stream); }
  });
}

}  // namespace tessera::kernels::cuda

#include <algorithm>

#include "kernels/embedding/embedding.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_sort.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockWarps = kThreads / kWarp;
constexpr int kTogether = 8;  // rows that are on their way at once, before they are added

__device__ std::int64_t first_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kBlockWarps + threadIdx.x / kWarp;
}
__device__ std::int64_t warp_stride() {
  return static_cast<std::int64_t>(gridDim.x) * kBlockWarps;
}
__device__ int lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
/// Enough warps for `items`, so many to a block.
Grid warp_grid(std::int64_t items) {
  return grid_for(items * kWarp, kThreads);
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
  Access access;
};

// A warp has a row.
template <class Table, class Y>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<Table, Y> args) {
  constexpr int N = kPackOf<Table, Y>;
  for (std::int64_t at = first_warp(); at < args.rows; at += warp_stride()) {
    const Table* const token = args.token_table + args.tokens[at] * args.hidden;
    const Table* const position = args.position_table + at % args.seq * args.hidden;
    Y* const y = args.y + at * args.hidden;
    for (std::int64_t c = N * lane(); c < args.hidden; c += N * kWarp) {
      const std::int64_t count = args.hidden - c;
      float sum[N];
      float other[N];
      load_floats(token + c, args.access, count, sum);
      load_floats(position + c, args.access, count, other);
#pragma unroll
      for (int j = 0; j < N; ++j) { sum[j] += other[j]; }
      store_floats(y + c, args.access, count, sum);
    }
  }
}

/// Adds `rows` rows of dy to the elements [column, column + N) of one row of a table, in order:
/// row_of(i) is where the i-th lies in dy. The sum is rounded to the table's dtype every time.
template <int N, class Dy, class Table, class RowOf>
__device__ void add_rows(Table* to, const Dy* dy, std::int64_t rows, std::int64_t column,
                         std::int64_t hidden, Access access, RowOf row_of) {
  const std::int64_t count = hidden - column;
  float sum[N];
  load_floats(to + column, access, count, sum);
  for (std::int64_t first = 0; first < rows; first += kTogether) {
    float some[kTogether][N];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const std::int64_t row = row_of(first + i < rows ? first + i : rows - 1);
      load_floats(dy + row * hidden + column, access, count, some[i]);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i < rows) {
#pragma unroll
        for (int j = 0; j < N; ++j) { sum[j] = to_float(from_float<Table>(sum[j] + some[i][j])); }
      }
    }
  }
  store_floats(to + column, access, count, sum);
}

template <class Dy, class Table>
struct Backward {
  const Dy* dy;
  Table* table;
  std::int64_t hidden;
  Access access;
};

/// The end of the run of equal tokens that starts at `first`, in whole warps.
__device__ std::int64_t run_end(const std::int32_t* tokens, std::int64_t first,
                                std::int64_t elems) {
  const std::int32_t token = tokens[first];
  for (std::int64_t at = first;; at += kWarp) {
    const bool same = at + lane() < elems && tokens[at + lane()] == token;
    const int count = warp_sum(same ? 1 : 0);
    if (count < kWarp) { return at + count; }
  }
}

// A warp has some columns of a distinct token: the first of its run in `sorted`.
template <class Dy, class Table>
__global__ void __launch_bounds__(kThreads)
    token_kernel(Backward<Dy, Table> args, SortedTokens sorted, std::int64_t elems) {
  constexpr int N = kPackOf<Dy, Table>;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kWarp + lane()) * N;
  for (std::int64_t first = first_warp(); first < elems; first += warp_stride()) {
    const std::int32_t token = sorted.tokens[first];
    if (first > 0 && sorted.tokens[first - 1] == token) { continue; }
    const std::int64_t rows = run_end(sorted.tokens, first, elems) - first;
    if (column < args.hidden) {
      add_rows<N>(args.table + token * args.hidden, args.dy, rows, column, args.hidden, args.access,
                  [&](std::int64_t i) { return std::int64_t{sorted.positions[first + i]}; });
    }
  }
}

// A thread has some columns of a position.
template <class Dy, class Table>
__global__ void __launch_bounds__(kThreads)
    position_kernel(Backward<Dy, Table> args, std::int64_t batch, std::int64_t seq) {
  constexpr int N = kPackOf<Dy, Table>;
  const std::int64_t packs = (args.hidden + N - 1) / N;
  for (std::int64_t i = first_index(); i < seq * packs; i += index_stride()) {
    const std::int64_t t = i / packs;
    add_rows<N>(args.table + t * args.hidden, args.dy, batch, i % packs * N, args.hidden,
                args.access, [&](std::int64_t b) { return b * seq + t; });
  }
}

// Tokens are sorted in pieces that the workspace has room for, one after another: each row is still
// added in order.
template <class Dy, class Table>
void add_tokens(const EmbeddingBackward& args, Stream stream) {
  constexpr int N = kPackOf<Dy, Table>;
  const std::int64_t rows = args.batch * args.seq;
  const Access access = access_of(N, args.hidden, {args.dy, args.dtoken_table});
  const std::int64_t across = ceil_div(args.hidden, std::int64_t{N * kWarp});
  const std::int64_t most = most_sorted(stream);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t elems = std::min(most, rows - first);
    const SortedTokens sorted = sort_by_token(args.tokens + first, elems, stream);
    Grid grid = warp_grid(elems);
    grid.blocks_y = static_cast<unsigned>(across);
    launch(token_kernel<Dy, Table>, grid, cuda_stream(stream).open(),
           Backward<Dy, Table>{args.dy.as<Dy>() + first * args.hidden,
                               args.dtoken_table.as<Table>(), args.hidden, access},
           sorted, elems);
  }
}

template <class Dy, class Table>
void add_positions(const EmbeddingBackward& args, Stream stream) {
  constexpr int N = kPackOf<Dy, Table>;
  launch(position_kernel<Dy, Table>,
         grid_for(args.seq * ceil_div(args.hidden, std::int64_t{N}), kThreads),
         cuda_stream(stream).open(),
         Backward<Dy, Table>{args.dy.as<Dy>(), args.dposition_table.as<Table>(), args.hidden,
                             access_of(N, args.hidden, {args.dy, args.dposition_table})},
         args.batch, args.seq);
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, Stream stream) {
  expects(args.token_table.dtype == args.position_table.dtype,
          "embedding_forward: both tables are of one dtype");
  with_device_types(args.token_table.dtype, args.y.dtype,
                    [&]<class Table, class Y>(std::type_identity<Table>, std::type_identity<Y>) {
                      const std::int64_t rows = args.batch * args.seq;
                      const Access access =
                          access_of(kPackOf<Table, Y>, args.hidden,
                                    {args.token_table, args.position_table, args.y});
                      launch(forward_kernel<Table, Y>, warp_grid(rows), cuda_stream(stream).open(),
                             Forward<Table, Y>{args.tokens, args.token_table.as<Table>(),
                                               args.position_table.as<Table>(), args.y.as<Y>(),
                                               rows, args.seq, args.hidden, access});
                    });
}

void embedding_backward(const EmbeddingBackward& args, Stream stream) {
  const Values table = args.dtoken_table ? args.dtoken_table : args.dposition_table;
  expects(!args.dposition_table || args.dposition_table.dtype == table.dtype,
          "embedding_backward: both gradients are of one dtype");
  with_device_types(args.dy.dtype, table.dtype,
                    [&]<class Dy, class Table>(std::type_identity<Dy>, std::type_identity<Table>) {
                      if (args.dtoken_table) { add_tokens<Dy, Table>(args, stream); }
                      if (args.dposition_table) { add_positions<Dy, Table>(args, stream); }
                    });
}

}  // namespace tessera::kernels::cuda

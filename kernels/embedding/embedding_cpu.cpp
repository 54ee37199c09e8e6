#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {
namespace {

void add_row(float* __restrict to, const float* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { to[i] += from[i]; }
}

void forward(const EmbeddingForward& args, const Chunk& rows) {
  const std::int64_t hidden = args.hidden;
  for (std::int64_t at = rows.first; at < rows.last; ++at) {
    const float* __restrict token = args.token_table + args.tokens[at] * hidden;
    const float* __restrict position = args.position_table + at % args.seq * hidden;
    float* __restrict y = args.y + at * hidden;
    for (std::int64_t h = 0; h < hidden; ++h) { y[h] = token[h] + position[h]; }
  }
}

// Several rows are added into one row of a table: threads share the columns out, so that they are
// added in order.
void backward(const EmbeddingBackward& args, const Chunk& columns) {
  const std::int64_t hidden = args.hidden;
  for (std::int64_t at = 0; at < args.batch * args.seq; ++at) {
    const float* dy = args.dy + at * hidden + columns.first;
    if (args.dtoken_table != nullptr) {
      add_row(args.dtoken_table + args.tokens[at] * hidden + columns.first, dy, columns.size());
    }
    if (args.dposition_table != nullptr) {
      add_row(args.dposition_table + at % args.seq * hidden + columns.first, dy, columns.size());
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, args.batch * args.seq, row_grain(args.hidden),
                 [&](const Chunk& rows) { forward(args, rows); });
  });
}

void embedding_backward(const EmbeddingBackward& args, Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, args.hidden, column_grain(args.batch * args.seq),
                 [&](const Chunk& columns) { backward(args, columns); });
  });
}

}  // namespace tessera::kernels::cpu

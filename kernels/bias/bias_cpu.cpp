#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/bias/bias.hpp"
#include "kernels/support/column_sum.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {
namespace {

void add_to_rows(float* y, const float* bias, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* __restrict row = y + r * columns;
    const float* __restrict from = bias;
    for (std::int64_t c = 0; c < columns; ++c) { row[c] += from[c]; }
  }
}

/// The sums of `columns` columns of a matrix whose rows lie `stride` apart.
void add_sums(const float* dy, float* dbias, std::int64_t rows, std::int64_t columns,
              std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; r += kRowBlock) {
    const std::int64_t count = std::min(kRowBlock, rows - r);
    add_column_sums(dbias, count, columns, [=](std::int64_t row, std::int64_t column, auto lanes) {
      return lanes.read(dy + (r + row) * stride + column);
    });
  }
}

}  // namespace

void add_bias(float* y, const float* bias, std::int64_t rows, std::int64_t columns, Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, rows, row_grain(columns), [=](const Chunk& chunk) {
      add_to_rows(y + chunk.first * columns, bias, chunk.size(), columns);
    });
  });
}

// Threads share the columns out, never the rows: a column's sum has one order.
void bias_gradient(const float* dy, float* dbias, std::int64_t rows, std::int64_t columns,
                   Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, columns, column_grain(rows), [=](const Chunk& chunk) {
      add_sums(dy + chunk.first, dbias + chunk.first, rows, chunk.size(), columns);
    });
  });
}

}  // namespace tessera::kernels::cpu

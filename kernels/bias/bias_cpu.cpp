#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "kernels/bias/bias.hpp"
#include "kernels/support/column_sum.hpp"

namespace tessera::kernels::cpu {

void add_bias(float* y, const float* bias, std::int64_t rows, std::int64_t columns, Stream stream) {
  enqueue(stream, [=] {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* __restrict row = y + r * columns;
      const float* __restrict from = bias;
      for (std::int64_t c = 0; c < columns; ++c) { row[c] += from[c]; }
    }
  });
}

void bias_gradient(const float* dy, float* dbias, std::int64_t rows, std::int64_t columns,
                   Stream stream) {
  enqueue(stream, [=] {
    for (std::int64_t r = 0; r < rows; r += kRowBlock) {
      const std::int64_t count = std::min(kRowBlock, rows - r);
      add_column_sums(dbias, count, columns,
                      [=](std::int64_t row, std::int64_t column, auto lanes) {
                        return lanes.read(dy + (r + row) * columns + column);
                      });
    }
  });
}

}  // namespace tessera::kernels::cpu

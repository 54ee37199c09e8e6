#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/bias/bias.hpp"
#include "kernels/support/column_sum.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class Y, class Bias>
void add_to_rows(Y* y, const Bias* bias, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    Y* row = y + r * columns;
    for_lanes(columns, [=](std::int64_t c, auto lanes) {
      lanes.write(row + c, lanes.read(row + c) + lanes.read(bias + c));
    });
  }
}

/// The sums of `columns` columns of a matrix whose rows lie `stride` apart.
template <class Dy, class Dbias>
void add_sums(const Dy* dy, Dbias* dbias, std::int64_t rows, std::int64_t columns,
              std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; r += kRowBlock) {
    const std::int64_t count = std::min(kRowBlock, rows - r);
    add_column_sums(dbias, count, columns, [=](std::int64_t row, std::int64_t column, auto lanes) {
      return lanes.read(dy + (r + row) * stride + column);
    });
  }
}

}  // namespace

void add_bias(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns, Stream stream) {
  device::enqueue(stream, [=] {
    with_types(y.dtype, bias.dtype, [&]<class Y, class Bias>(Types<Y, Bias>) {
      device::parallel_for(stream, rows, row_grain(columns), [=](const device::Chunk& chunk) {
        add_to_rows(y.as<Y>() + chunk.first * columns, bias.as<Bias>(), chunk.size(), columns);
      });
    });
  });
}

// Threads divide the columns, never the rows: a column's sum has one order.
void bias_gradient(ConstValues dy, Values dbias, std::int64_t rows, std::int64_t columns,
                   Write write, Stream stream) {
  device::enqueue(stream, [=] {
    with_types(dy.dtype, dbias.dtype, [&]<class Dy, class Dbias>(Types<Dy, Dbias>) {
      device::parallel_for(stream, columns, column_grain(rows), [=](const device::Chunk& chunk) {
        clear_for(write, dbias.at(chunk.first), chunk.size());
        add_sums(dy.as<Dy>() + chunk.first, dbias.as<Dbias>() + chunk.first, rows, chunk.size(),
                 columns);
      });
    });
  });
}

}  // namespace tessera::kernels::cpu

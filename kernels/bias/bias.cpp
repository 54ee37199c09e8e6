#include "kernels/bias/bias.hpp"

#include "kernels/support/arguments.hpp"

namespace tessera::kernels {

void add_bias(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns, Stream stream) {
  const Arguments check{"add_bias"};
  check.sizes({{"rows", rows}, {"columns", columns}});
  check.arrays({{"y", y, rows * columns}, {"bias", bias, columns}});
  check.table(stream).add_bias(y, bias, rows, columns, stream);
}

void bias_gradient(ConstValues dy, Values dbias, std::int64_t rows, std::int64_t columns,
                   Write write, Stream stream) {
  const Arguments check{"bias_gradient"};
  check.sizes({{"rows", rows}, {"columns", columns}});
  check.arrays({{"dy", dy, rows * columns}, {"dbias", dbias, columns}});
  check.table(stream).bias_gradient(dy, dbias, rows, columns, write, stream);
}

}  // namespace tessera::kernels

#include "kernels/bias/bias.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {

void add_bias(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns, Stream) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      set_element(y, r * columns + c, element(y, r * columns + c) + element(bias, c));
    }
  }
}

void bias_gradient(ConstValues dy, Values dbias, std::int64_t rows, std::int64_t columns,
                   Write write, Stream) {
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) {
      sum += static_cast<double>(element(dy, r * columns + c));
    }
    const double before = write == Write::add ? static_cast<double>(element(dbias, c)) : 0.0;
    set_element(dbias, c, static_cast<float>(before + sum));
  }
}

}  // namespace tessera::kernels::reference

#include "kernels/bias/bias.hpp"

namespace tessera::kernels::reference {

void add_bias(float* y, const float* bias, std::int64_t rows, std::int64_t columns, Stream) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) { y[r * columns + c] += bias[c]; }
  }
}

void bias_gradient(const float* dy, float* dbias, std::int64_t rows, std::int64_t columns, Stream) {
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) { sum += static_cast<double>(dy[r * columns + c]); }
    dbias[c] = static_cast<float>(static_cast<double>(dbias[c]) + sum);
  }
}

}  // namespace tessera::kernels::reference

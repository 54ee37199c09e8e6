#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Softmax cross entropy that turns logits into their gradient in place: a second copy of the
/// logits is never held.
///
///   *loss += loss_scale * sum over rows of (log sum exp(logits[r]) - logits[r, target[r]]) (fp64)
///   logits[r, c] <- g * (softmax(logits[r])[c] - [c == target[r]])
///        with g = gradient_scale * *dynamic_scale in fp32
///
/// A row's loss and gradient depend on that row alone. The losses are added in fp64: on a CPU row
/// by row in order, on CUDA in an order that depends on the number of rows alone. `gradient_scale`
/// 0 leaves the logits as they are.
struct CrossEntropy {
  Values logits;                ///< [rows, classes]
  const std::int32_t* targets;  ///< [rows], each in [0, classes)
  double* loss;
  std::int64_t rows;
  std::int64_t classes;
  float gradient_scale;
  double loss_scale;
  const float* dynamic_scale = nullptr;  ///< read when the kernel runs; null: 1
  /// Elements from one row of logits to the next; 0: `classes`. Gaps are neither read nor written.
  std::int64_t stride = 0;

  [[nodiscard]] std::int64_t row_elems() const noexcept { return stride == 0 ? classes : stride; }
};
using CrossEntropyKernel = void(const CrossEntropy& args, Stream stream);

namespace reference {
CrossEntropyKernel cross_entropy;
}
namespace cpu {
CrossEntropyKernel cross_entropy;
}
namespace cuda {
CrossEntropyKernel cross_entropy;
}

}  // namespace tessera::kernels

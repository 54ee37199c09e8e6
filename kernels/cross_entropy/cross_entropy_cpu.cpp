#include <cmath>

#include "device/cpu/host_task.hpp"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/cross_entropy/rows_cpu.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::cpu {
namespace {

/// Turns a row into its gradient, given its largest logit; returns the sum of exponentials.
double row_gradient(float* logits, std::int64_t classes, std::int32_t target, float gradient_scale,
                    float max) {
  const double sum = exp_row(logits, logits, classes, 1.0F, max);
  scale_row(logits, classes, static_cast<float>(static_cast<double>(gradient_scale) / sum));
  logits[target] -= gradient_scale;
  return sum;
}

// The exponentials are computed twice: kept in 16 bits, they would be rounded twice.
template <class Half>
double row_gradient(Half* logits, std::int64_t classes, std::int32_t target, float gradient_scale,
                    float max) {
  const double sum = exp_sum(logits, classes, max);
  const auto factor = static_cast<float>(static_cast<double>(gradient_scale) / sum);
  write_gradient(logits, classes, target, gradient_scale, max, factor);
  return sum;
}

// Returns the row's loss; turns the logits into their gradient unless its scale is 0.
template <class T>
double row_loss(T* logits, std::int64_t classes, std::int32_t target, float gradient_scale) {
  const float max = row_max(logits, classes);
  const double target_logit = element(logits, target);
  const double sum = gradient_scale == 0.0F
                         ? exp_sum(logits, classes, max)
                         : row_gradient(logits, classes, target, gradient_scale, max);
  // Large logits cancel before the logarithm is added.
  return std::log(sum) + (static_cast<double>(max) - target_logit);
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  device::enqueue(stream, [=] {
    const float scale = args.dynamic_scale == nullptr ? 1.0F : *args.dynamic_scale;
    const float gradient_scale = args.gradient_scale * scale;
    add_losses(args, gradient_scale, stream, [&](std::int64_t r) {
      return with_type(args.logits.dtype, [&]<class T>(std::type_identity<T>) {
        return row_loss(args.logits.as<T>() + r * args.row_elems(), args.classes, args.targets[r],
                        gradient_scale);
      });
    });
  });
}

}  // namespace tessera::kernels::cpu

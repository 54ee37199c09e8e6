#include <cmath>

#include "device/cpu/host_task.hpp"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/support/softmax.hpp"

namespace tessera::kernels::cpu {
namespace {

double exp_sum(const float* x, std::int64_t elems, float shift) {
  constexpr std::int64_t block = 1024;
  float unused[block];
  double total = 0.0;
  for (std::int64_t first = 0; first < elems; first += block) {
    total += exp_row(x + first, unused, std::min(block, elems - first), 1.0F, shift);
  }
  return total;
}

// Returns the row's loss; turns the logits into their gradient unless its scale is 0.
double row_loss(float* logits, std::int64_t classes, std::int32_t target, float gradient_scale) {
  const float max = row_max(logits, classes);
  const double target_logit = logits[target];
  double sum = 0.0;
  if (gradient_scale == 0.0F) {
    sum = exp_sum(logits, classes, max);
  } else {
    sum = exp_row(logits, logits, classes, 1.0F, max);
    scale_row(logits, classes, static_cast<float>(static_cast<double>(gradient_scale) / sum));
    logits[target] -= gradient_scale;
  }
  // Large logits cancel before the logarithm is added.
  return std::log(sum) + (static_cast<double>(max) - target_logit);
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  enqueue(stream, [=] {
    double loss = 0.0;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      loss += row_loss(args.logits + r * args.classes, args.classes, args.targets[r],
                       args.gradient_scale);
    }
    *args.loss += args.loss_scale * loss;
  });
}

}  // namespace tessera::kernels::cpu

#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/support/grain.hpp"
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

// Rows whose losses threads compute before one thread adds them, in order.
constexpr std::int64_t kSpan = 512;

/// The losses of rows [first, first + rows), added to `loss`.
void add_losses(const CrossEntropy& args, std::int64_t first, std::int64_t rows, double& loss,
                Stream stream) {
  double losses[kSpan];
  parallel_for(stream, rows, row_grain(args.classes), [&](const Chunk& chunk) {
    for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
      const std::int64_t r = first + i;
      losses[i] = row_loss(args.logits + r * args.classes, args.classes, args.targets[r],
                           args.gradient_scale);
    }
  });
  for (std::int64_t i = 0; i < rows; ++i) { loss += losses[i]; }
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  enqueue(stream, [=] {
    double loss = 0.0;
    for (std::int64_t first = 0; first < args.rows; first += kSpan) {
      add_losses(args, first, std::min(kSpan, args.rows - first), loss, stream);
    }
    *args.loss += args.loss_scale * loss;
  });
}

}  // namespace tessera::kernels::cpu

#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/softmax.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class T>
double exp_sum(const T* x, std::int64_t elems, float shift) {
  constexpr std::int64_t block = 1024;
  float unused[block];
  double total = 0.0;
  for (std::int64_t first = 0; first < elems; first += block) {
    total += exp_row(x + first, unused, std::min(block, elems - first), 1.0F, shift);
  }
  return total;
}

/// Turns a row into its gradient, given its largest logit; returns the sum of exponentials.
double row_gradient(float* logits, std::int64_t classes, std::int32_t target, float gradient_scale,
                    float max) {
  const double sum = exp_row(logits, logits, classes, 1.0F, max);
  scale_row(logits, classes, static_cast<float>(static_cast<double>(gradient_scale) / sum));
  logits[target] -= gradient_scale;
  return sum;
}

// The exponentials are computed twice: kept in 16 bits in between, they would be rounded twice.
template <class Half>
double row_gradient(Half* logits, std::int64_t classes, std::int32_t target, float gradient_scale,
                    float max) {
  const double sum = exp_sum(logits, classes, max);
  const auto factor = static_cast<float>(static_cast<double>(gradient_scale) / sum);
  const float hit = exp(splat(logits[target].to_float() - max))[0] * factor - gradient_scale;
  for_lanes(classes, [=](std::int64_t i, auto lanes) {
    lanes.write(logits + i, exp(lanes.read(logits + i) - max) * factor);
  });
  logits[target] = Half::from_float(hit);
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

// Rows whose losses threads compute before one thread adds them, in order.
constexpr std::int64_t kSpan = 512;

/// The losses of rows [first, first + rows), added to `loss`.
void add_losses(const CrossEntropy& args, float gradient_scale, std::int64_t first,
                std::int64_t rows, double& loss, Stream stream) {
  double losses[kSpan];
  parallel_for(stream, rows, row_grain(args.classes), [&](const Chunk& chunk) {
    for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
      const std::int64_t r = first + i;
      losses[i] = with_type(args.logits.dtype, [&]<class T>(std::type_identity<T>) {
        return row_loss(args.logits.as<T>() + r * args.row_elems(), args.classes, args.targets[r],
                        gradient_scale);
      });
    }
  });
  for (std::int64_t i = 0; i < rows; ++i) { loss += losses[i]; }
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  enqueue(stream, [=] {
    const float scale = args.dynamic_scale == nullptr ? 1.0F : *args.dynamic_scale;
    double loss = 0.0;
    for (std::int64_t first = 0; first < args.rows; first += kSpan) {
      add_losses(args, args.gradient_scale * scale, first, std::min(kSpan, args.rows - first), loss,
                 stream);
    }
    *args.loss += args.loss_scale * loss;
  });
}

}  // namespace tessera::kernels::cpu

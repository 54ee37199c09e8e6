#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy/cross_entropy.hpp"

namespace tessera::kernels::reference {

void cross_entropy(const CrossEntropy& args, Stream) {
  double loss = 0.0;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    float* logits = args.logits + r * args.classes;
    const double max = *std::max_element(logits, logits + args.classes);
    double sum = 0.0;
    for (std::int64_t c = 0; c < args.classes; ++c) {
      sum += std::exp(static_cast<double>(logits[c]) - max);
    }
    loss += std::log(sum) + (max - static_cast<double>(logits[args.targets[r]]));
    if (args.gradient_scale == 0.0F) { continue; }
    for (std::int64_t c = 0; c < args.classes; ++c) {
      const double hit = c == args.targets[r] ? 1.0 : 0.0;
      const double softmax = std::exp(static_cast<double>(logits[c]) - max) / sum;
      logits[c] = static_cast<float>(static_cast<double>(args.gradient_scale) * (softmax - hit));
    }
  }
  *args.loss += args.loss_scale * loss;
}

}  // namespace tessera::kernels::reference

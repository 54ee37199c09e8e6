#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {

void cross_entropy(const CrossEntropy& args, Stream) {
  const float scale = args.dynamic_scale == nullptr ? args.gradient_scale
                                                    : args.gradient_scale * *args.dynamic_scale;
  double loss = 0.0;
  for (std::int64_t r = 0; r < args.rows; ++r) {
    if (args.targets[r] < 0) {
      for (std::int64_t c = 0; c < args.classes && scale != 0.0F; ++c) {
        set_element(args.logits, r * args.row_elems() + c, 0.0F);
      }
      continue;
    }
    if (args.counted != nullptr) { *args.counted += 1.0; }
    const auto logit = [&](std::int64_t c) {
      return static_cast<double>(element(args.logits, r * args.row_elems() + c));
    };
    double max = logit(0);
    for (std::int64_t c = 1; c < args.classes; ++c) { max = std::max(max, logit(c)); }
    double sum = 0.0;
    for (std::int64_t c = 0; c < args.classes; ++c) { sum += std::exp(logit(c) - max); }
    loss += std::log(sum) + (max - logit(args.targets[r]));
    if (scale == 0.0F) { continue; }
    for (std::int64_t c = 0; c < args.classes; ++c) {
      const double hit = c == args.targets[r] ? 1.0 : 0.0;
      const double softmax = std::exp(logit(c) - max) / sum;
      set_element(args.logits, r * args.row_elems() + c,
                  static_cast<float>(static_cast<double>(scale) * (softmax - hit)));
    }
  }
  *args.loss += args.loss_scale * loss;
}

}  // namespace tessera::kernels::reference

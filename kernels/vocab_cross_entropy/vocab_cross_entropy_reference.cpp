#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/support/typed.hpp"
#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"

namespace tessera::kernels::reference {

void vocab_statistics(const VocabStatistics& args, Stream) {
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const auto logit = [&](std::int64_t c) {
      return static_cast<double>(element(args.logits, r * args.row_elems() + c));
    };
    double max = -std::numeric_limits<double>::infinity();
    for (std::int64_t c = 0; c < args.classes; ++c) { max = std::max(max, logit(c)); }
    double sum = 0.0;
    double target = 0.0;
    for (std::int64_t c = 0; c < args.classes; ++c) {
      sum += std::exp(logit(c) - max);
      if (args.first_class + c == args.targets[r]) { target = logit(c); }
    }
    float* const out = args.statistics + r * kRowStatistics;
    out[0] = static_cast<float>(max);
    out[1] = static_cast<float>(sum);
    out[2] = static_cast<float>(target);
  }
}

void vocab_cross_entropy(const VocabCrossEntropy& args, Stream) {
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
    const auto statistic = [&](std::int64_t part, std::int64_t i) {
      return static_cast<double>(args.statistics[(part * args.rows + r) * kRowStatistics + i]);
    };
    double max = statistic(0, 0);
    for (std::int64_t p = 1; p < args.parts; ++p) { max = std::max(max, statistic(p, 0)); }
    double sum = 0.0;
    double target = 0.0;
    for (std::int64_t p = 0; p < args.parts; ++p) {
      sum += statistic(p, 1) * std::exp(statistic(p, 0) - max);
      target += statistic(p, 2);
    }
    loss += std::log(sum) + (max - target);
    if (scale == 0.0F) { continue; }
    for (std::int64_t c = 0; c < args.classes; ++c) {
      const std::int64_t at = r * args.row_elems() + c;
      const double hit = args.first_class + c == args.targets[r] ? 1.0 : 0.0;
      const double softmax = std::exp(static_cast<double>(element(args.logits, at)) - max) / sum;
      set_element(args.logits, at,
                  static_cast<float>(static_cast<double>(scale) * (softmax - hit)));
    }
  }
  *args.loss += args.loss_scale * loss;
}

}  // namespace tessera::kernels::reference

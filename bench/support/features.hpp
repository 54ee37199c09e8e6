#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/support/step.hpp"

namespace tessera::bench {

/// Steps of each strategy, the plain one among them, whose models are held at the same time.
inline constexpr std::size_t kFeatureSteps = 9;

/// Steps with one feature of training, beside the plain fp32 step of the same rounds.
struct FeatureSteps {
  std::string name;
  Series series;                  ///< seconds a step
  Series cpu;                     ///< processor seconds a step, of all ranks
  std::size_t reduced_bytes = 0;  ///< sent by rank 0 in a step's reductions of gradients
};

struct FeatureCosts {
  Strategy strategy{};
  std::vector<FeatureSteps> features;  ///< [0] is the plain step

  /// The feature's step as a multiple of the plain one: the median over the rounds.
  [[nodiscard]] double seconds_ratio(const FeatureSteps& feature) const {
    return median_ratio(feature.series, features.front().series);
  }
  [[nodiscard]] double cpu_ratio(const FeatureSteps& feature) const {
    return median_ratio(feature.cpu, features.front().cpu);
  }
};

/// For each strategy of `options`: plain steps, and steps with clipping, recomputed blocks,
/// gradients in bf16 on the wire, bf16, fp16 and with the model's checks, all in turn in each
/// round; among them plain steps once more, whose ratio is the noise. Bytes come from a further,
/// traced step.
[[nodiscard]] std::vector<FeatureCosts> measure_features(const StepOptions& options);

}  // namespace tessera::bench

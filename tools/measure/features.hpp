#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/measure/step.hpp"

namespace tessera::bench {

/// Steps of each strategy, including the plain one, whose models are in memory at the same time.
inline constexpr std::size_t kFeatureSteps = 9;

/// Steps with one feature of training, and plain fp32 steps of the same rounds.
struct FeatureSteps {
  std::string name;
  Series series;                  ///< seconds per step
  Series cpu;                     ///< processor seconds per step, of all ranks
  std::size_t reduced_bytes = 0;  ///< sent by rank 0 in a step's reductions of gradients
};

struct FeatureCosts {
  Strategy strategy{};
  std::vector<FeatureSteps> features;  ///< [0] is the plain step

  /// The feature's step relative to the plain one: the median over the rounds.
  [[nodiscard]] double seconds_ratio(const FeatureSteps& feature) const {
    return median_ratio(feature.series, features.front().series);
  }
  [[nodiscard]] double cpu_ratio(const FeatureSteps& feature) const {
    return median_ratio(feature.cpu, features.front().cpu);
  }
};

/// For each strategy of `options`, measures plain steps, and steps with clipping, recomputed
/// blocks, gradients sent in bf16, bf16, fp16 and the model's checks, all in turn in each round.
/// Plain steps are measured twice: the ratio of the two is the noise. Bytes come from a further,
/// traced step.
[[nodiscard]] std::vector<FeatureCosts> measure_features(const StepOptions& options);

}  // namespace tessera::bench

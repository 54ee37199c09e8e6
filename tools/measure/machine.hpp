#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/profile/machine_profile.hpp"
#include "tools/measure/step.hpp"

namespace tessera::bench {

/// A GPT whose kernels are timed, in one dtype.
struct TimedModel {
  StepOptions step;
  DType dtype = DType::fp32;
};

struct MachineOptions {
  int cores = 1;   ///< shared by all ranks
  int rounds = 7;  ///< steps of each model, and calls of each collective
  std::vector<TimedModel> models;
};

/// Models of two layers: hidden 64, 128, ... to `widest` with 2 and 8 sequences of 128 tokens in
/// fp32, and one half as wide as the widest in bf16 and fp16.
[[nodiscard]] std::vector<TimedModel> machine_models(std::int64_t widest);

struct MeasuredMachine {
  MachineProfile profile;
  std::size_t times = 0;  ///< kernel times, whose medians are the samples
  /// Median of (upper quartile - lower quartile) / median over the kernels that take longest,
  /// together 90 % of the total time.
  double spread = 0;
};

/// Measures the profile of this machine for ranks that are threads: the times of kernels within
/// steps, on one rank alone and on one rank per core at once; `local` collectives of 2 and 4 ranks;
/// and the part of a step outside of kernels. All are medians.
[[nodiscard]] MeasuredMachine measure_machine(const MachineOptions& options);

}  // namespace tessera::bench

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/support/step.hpp"
#include "tessera/base/dtype.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera::bench {

/// A GPT whose kernels are timed, in one dtype.
struct TimedModel {
  StepOptions step;
  DType dtype = DType::fp32;
};

struct MachineOptions {
  int cores = 1;   ///< that ranks will share
  int rounds = 7;  ///< steps of each model, and times of each collective
  std::vector<TimedModel> models;
};

/// Two layers each: hidden 64, 128, ... to `widest` with 2 and 8 sequences of 128 tokens in fp32,
/// and one half as wide as the widest in bf16 and fp16.
[[nodiscard]] std::vector<TimedModel> machine_models(std::int64_t widest);

struct MeasuredMachine {
  MachineProfile profile;
  std::size_t times = 0;  ///< of kernels, that the samples are medians of
  /// Median of (upper quartile - lower quartile) / median over the kernels that take longest,
  /// together 90 % of all time.
  double spread = 0;
};

/// The profile of this machine as ranks that are threads use it: kernels as they take their time
/// within steps, by one rank alone and by as many as there are cores at once; `local` collectives
/// of 2 and 4 ranks; what of a step is no kernel's. Medians.
[[nodiscard]] MeasuredMachine measure_machine(const MachineOptions& options);

}  // namespace tessera::bench

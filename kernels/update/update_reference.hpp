#pragma once

#include "kernels/support/element.hpp"
#include "kernels/support/master_parts.hpp"
#include "kernels/update/quantised_moments_reference.hpp"
#include "kernels/update/stochastic.hpp"

namespace tessera::kernels::reference {

/// Stores element `i` of one of a run's arrays, rounded as the run says.
inline void write(const UpdateRun& run, const StepScalars& scalars, RoundedArray array,
                  std::int64_t i, float value) {
  const Values to = array == RoundedArray::parameter ? run.parameter
                    : array == RoundedArray::first   ? run.first
                                                     : run.second;
  if (to.dtype == DType::fp32 || run.rounding == Rounding::nearest) {
    const bool parameter = array == RoundedArray::parameter;
    return store_part(to.at(i), parameter ? MasterPart::parameter : MasterPart::value, &value, 1);
  }
  narrow_stochastic(to.at(i), &value, 1, StochasticKey::of(run, scalars.updates, array),
                    run.first_in_parameter + i);
}

inline float read_weight(const UpdateRun& run, std::int64_t i) {
  if (run.remainder == nullptr) { return run.master[i]; }
  return join_master(run.parameter.as<bfloat16>()[i].bits, run.remainder[i]);
}

inline void write_weight(const UpdateRun& run, const StepScalars& scalars, std::int64_t i,
                         float value) {
  if (run.remainder != nullptr) {
    run.parameter.as<bfloat16>()[i].bits = parameter_bits(value);
    run.remainder[i] = remainder_bits(value);
    return;
  }
  run.master[i] = value;
  if (run.parameter) { write(run, scalars, RoundedArray::parameter, i, value); }
}

/// A step over a run with quantised moments: dequantises them, calls `step(wide)` on a run with
/// fp32 moments, and quantises them again.
template <class Step>
void step_in_fp32(const UpdateRun& run, const StepScalars& scalars, const Step& step) {
  WideMoments moments = dequantise(run);
  UpdateRun wide = run;
  wide.first_quantised = {};
  wide.second_quantised = {};
  wide.first = moments.first.data();
  if (run.second_quantised) { wide.second = moments.second.data(); }
  step(wide);
  quantise(run, scalars.updates, moments);
}

}  // namespace tessera::kernels::reference

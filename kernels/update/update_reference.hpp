#pragma once

#include "kernels/support/element.hpp"
#include "kernels/update/stochastic.hpp"

namespace tessera::kernels::reference {

/// Stores element `i` of one of a run's arrays, rounded as the run says.
inline void write(const UpdateRun& run, const StepScalars& scalars, RoundedArray array,
                  std::int64_t i, float value) {
  const Values to = array == RoundedArray::parameter ? run.parameter
                    : array == RoundedArray::first   ? run.first
                                                     : run.second;
  if (to.dtype == DType::fp32 || run.rounding == Rounding::nearest) { return write(to, i, value); }
  narrow_stochastic(to.at(i), &value, 1, StochasticKey::of(run, scalars.updates, array),
                    run.first_in_parameter + i);
}

inline void write_weight(const UpdateRun& run, const StepScalars& scalars, std::int64_t i,
                         float value) {
  run.master[i] = value;
  if (run.parameter) { write(run, scalars, RoundedArray::parameter, i, value); }
}

}  // namespace tessera::kernels::reference

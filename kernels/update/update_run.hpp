#pragma once

#include <cstdint>

#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/base/rounding.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// What every optimizer kernel works on: one run of elements that are updated alike. Arrays of
/// `elems`, none overlapping. The rule is computed in fp32 on fp32 values of gradient, master and
/// moments, in one pass over memory; what is stored in a narrower dtype is rounded once. Nothing is
/// written if StepScalars::apply is 0.
///
/// Same bits on every backend and for every way of cutting a tensor: only correctly rounded
/// operations, in the order that the rule gives, none contracted. Stochastic rounding depends on
/// the element's place in the whole parameter, never on the cut: see StochasticKey.
struct UpdateRun {
  float* master = nullptr;
  Values parameter = {};      ///< bf16 or fp16: a rounded copy of the new master; null: not written
  ConstValues gradient = {};  ///< fp32, bf16 or fp16: summed over ranks and micro-batches
  Values first = {};          ///< moments, fp32 or bf16; null if the rule has none
  Values second = {};
  std::int64_t elems = 0;
  Rounding rounding = Rounding::nearest;  ///< of `parameter` and of bf16 moments
  // Read by stochastic rounding only. The run then lies in one parameter.
  std::uint64_t seed = 0;
  std::uint32_t parameter_id = 0;
  std::int64_t first_in_parameter = 0;  ///< element 0 of the run

  [[nodiscard]] UpdateRun slice(std::int64_t from, std::int64_t count) const noexcept {
    const auto at = [from](auto values) { return values ? values.at(from) : values; };
    return {master + from,     at(parameter),
            gradient.at(from), at(first),
            at(second),        count,
            rounding,          seed,
            parameter_id,      first_in_parameter + from};
  }
};

}  // namespace tessera::kernels

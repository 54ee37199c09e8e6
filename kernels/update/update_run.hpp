#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/base/moment_format.hpp"
#include "tessera/base/rounding.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// A quantised moment: one 8-bit code per element (kernels/update/moment_code.hpp) and one scale
/// per block of kMomentBlock. Null if the moment has another format.
struct QuantisedMoment {
  std::uint8_t* values = nullptr;
  float* scales = nullptr;

  [[nodiscard]] explicit operator bool() const noexcept { return values != nullptr; }
  /// The moment from element `elems` on, a multiple of kMomentBlock.
  [[nodiscard]] QuantisedMoment at(std::int64_t elems) const noexcept {
    return {values + elems, scales + elems / kMomentBlock};
  }
};

/// The input of every optimizer kernel: one run of elements that are updated alike. Arrays have
/// `elems` elements and do not overlap. The rule is computed in fp32 on fp32 values of gradient,
/// master and moments, in one pass over memory; results in a narrower dtype are rounded once.
/// Nothing is written if StepScalars::apply is 0.
///
/// Masters are kept whole, or as the remainder that a bf16 parameter leaves of them: the kernel
/// then joins the two and writes both (support/master_parts.hpp). Weights, parameters and moments
/// have the same bits as with whole masters.
///
/// The bits are the same on every backend and for every way of cutting a tensor: there are only
/// correctly rounded operations, in the rule's order, without contraction. Stochastic rounding
/// depends on the element's index in the whole parameter, never on the cut: see StochasticKey. A
/// run with quantised moments starts at the start of a block.
struct UpdateRun {
  float* master = nullptr;  ///< null if there is a remainder
  Values parameter = {};    ///< bf16 or fp16: a rounded copy of the new master; null: not written
  std::uint16_t* remainder =
      nullptr;                ///< of the masters of a bf16 `parameter`, which is then also read
  ConstValues gradient = {};  ///< fp32, bf16 or fp16: summed over ranks and micro-batches
  Values first = {};  ///< moments, fp32 or bf16; null if the rule has none or they are quantised
  Values second = {};
  QuantisedMoment first_quantised = {};
  QuantisedMoment second_quantised = {};  ///< of the square root
  std::int64_t elems = 0;
  /// Rounding of bf16 moments and of `parameter`; nearest is defined by MasterPart::parameter. With
  /// a remainder the parameter is always rounded to nearest.
  Rounding rounding = Rounding::nearest;
  // Read only by stochastic rounding and quantised moments. The run then lies in one parameter.
  std::uint64_t seed = 0;
  std::uint32_t parameter_id = 0;
  /// The run's first element. In a parameter that `tensor` cuts, elements are numbered part by
  /// part.
  std::int64_t first_in_parameter = 0;

  [[nodiscard]] UpdateRun slice(std::int64_t from, std::int64_t count) const noexcept {
    const auto at = [from](auto values) { return values ? values.at(from) : values; };
    const auto beyond = [from](auto* array) { return array != nullptr ? array + from : array; };
    return {beyond(master),
            at(parameter),
            beyond(remainder),
            gradient.at(from),
            at(first),
            at(second),
            at(first_quantised),
            at(second_quantised),
            count,
            rounding,
            seed,
            parameter_id,
            first_in_parameter + from};
  }
};

/// A run with its rule's hyperparameters.
template <class Hyper>
struct RuledRun {
  UpdateRun run;
  Hyper hyper;
};

template <class Hyper>
[[nodiscard]] std::array<RuledRun<Hyper>, 1> alone(const UpdateRun& run, const Hyper& hyper) {
  return {{{run, hyper}}};
}

/// One step of an optimizer over runs that share no element. On CUDA they are one launch, unless
/// they exceed its parameters (over a hundred runs) or take different kernels.
template <class Hyper>
using UpdateKernel = void(std::span<const RuledRun<Hyper>> runs, const StepScalars* scalars,
                          Stream stream);

}  // namespace tessera::kernels

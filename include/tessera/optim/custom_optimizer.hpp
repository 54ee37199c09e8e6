#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tessera/base/half.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/shard/parameter_info.hpp"

namespace tessera {

/// A piece of one parameter that this rank updates: elements [first, first + weights.size()) of the
/// whole parameter. How parameters are cut into pieces is the strategy's business: a rule that
/// treats every element alike, by its own values and `first`, gives the same bits under every
/// strategy.
///
/// All arrays are in device memory and ready on `stream`. On a CPU the update function is called
/// when the stream has come there, and plain loops do.
///
/// Where the optimizer is offloaded (ModelOptions::offload) all arrays are in host memory, whatever
/// the device, `stream` is the host's, and the function is called on another thread than the
/// rank's, beside the next forward pass: plain loops do there too, and it must not throw.
struct ShardUpdate {
  const ParameterInfo* parameter = nullptr;
  std::int64_t first = 0;
  std::span<float> weights;  ///< fp32: masters, or the parameters themselves
  ConstValues gradient;      ///< summed over ranks and micro-batches: see `gradient_at`
  std::span<const std::span<float>> states;  ///< as `weights`, zero before the first update

  /// The scalars of the step, in device memory, the same on every rank. Where `*apply` is 0 the
  /// gradient is not finite, and the update must write nothing.
  const float* gradient_factor = nullptr;  ///< makes of the sum the average, clipped and unscaled
  const std::int64_t* apply = nullptr;
  const std::int64_t* updates = nullptr;  ///< made so far, this one included: from 1

  float lr = 0.0F;            ///< of this step and of the parameter's group
  float weight_decay = 0.0F;  ///< 0 where the parameter does not decay
  Stream stream;

  /// Element `i` of the piece: averaged, clipped, fp32. On a CPU.
  [[nodiscard]] float gradient_at(std::size_t i) const noexcept {
    const auto at = static_cast<std::int64_t>(i);
    switch (gradient.dtype) {
      case DType::bf16:
        return gradient.as<bfloat16>()[at].to_float() * *gradient_factor;
      case DType::fp16:
        return gradient.as<float16>()[at].to_float() * *gradient_factor;
      default:
        return gradient.as<float>()[at] * *gradient_factor;
    }
  }
};

/// An update rule of the user's own, called once a step for each piece that this rank updates. It
/// changes `weights` and `states`; low-precision parameters are rounded from the weights after it.
struct CustomOptimizer {
  std::string name = {};  ///< for errors, and compared across ranks
  int states = 0;         ///< fp32 values that it keeps for each parameter, from 0 to 16
  float lr = 1e-3F;
  float weight_decay = 0.0F;
  std::function<void(const ShardUpdate&)> update = {};
};

}  // namespace tessera

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tessera/base/half.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/shard/parameter_info.hpp"
#include "tessera/shard/tensor_part.hpp"

namespace tessera {

/// A piece of one parameter that this rank updates: elements [first, first + weights.size()) of the
/// rank's part of the parameter. The part is the whole parameter, unless the mesh's dimension
/// `tensor` cuts it. The strategy and the mesh decide how parameters are cut into pieces. A rule
/// gives the same bits under every strategy if it updates each element by that element's values and
/// index in the parameter only.
///
///     piece.part->for_each_run({piece.first, std::ssize(piece.weights)},
///                              [&](const Range& whole, std::int64_t at) { ... });
///
/// calls back for each run of the piece that is contiguous in the whole parameter too. Weight
/// `at - piece.first` is element `whole.first` of the parameter.
///
/// Time:    all arrays are in device memory and ready on `stream`. On a CPU the update function is
///          called when the stream reaches it, so plain loops are enough.
/// Memory:  the arrays are borrowed until the function's work on `stream` is done.
/// Threads: with ModelOptions::offload optimizer all arrays are in host memory and `stream` is the
///          host's. The function is called on another thread than the rank's, beside the next
///          forward pass. Plain loops are enough, and it must not throw. With `offload` state the
///          arrays are in device memory and `stream` belongs to the update: on a CPU the function
///          is called on that stream's thread, beside the next forward pass. Pieces may then be
///          smaller than without offload.
struct ShardUpdate {
  const ParameterInfo* parameter = nullptr;  ///< The parameter that the piece belongs to.
  const TensorPart* part = nullptr;          ///< This rank's part of the parameter.
  std::int64_t first = 0;                    ///< The piece's first element in the part.
  /// The fp32 values to update: master weights, or the parameters themselves.
  std::span<float> weights;
  /// The gradient, summed over ranks and micro-batches. `gradient_at` returns the average.
  ConstValues gradient;
  /// CustomOptimizer::states arrays as long as `weights`, zero before the first update.
  std::span<const std::span<float>> states;

  // The scalars of the step, in device memory, the same on every rank.

  /// The factor that turns the sum in `gradient` into the average, clipped and without loss scale.
  const float* gradient_factor = nullptr;
  /// 0 where the gradient is not finite: the update must then write nothing. 1 otherwise.
  const std::int64_t* apply = nullptr;
  /// The number of updates so far, this one included, from 1.
  const std::int64_t* updates = nullptr;

  float lr = 0.0F;            ///< The rate of this step, times lr_scale of the parameter's group.
  float weight_decay = 0.0F;  ///< The parameter's decay; 0 if it does not decay.
  Stream stream;              ///< The stream on which the update runs.

  /// Returns the gradient of element `i` of the piece in fp32: averaged, clipped and without loss
  /// scale. The gradient must be in memory that the host can read.
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

/// An update rule that the user writes. `update` is called once a step for each piece that this
/// rank updates, and changes `weights` and `states`; the library then rounds 16-bit parameters from
/// the weights. It is refused with ConfigError if master weights are kept as remainders.
struct CustomOptimizer {
  /// The name in errors, which must not be empty. It is compared across ranks.
  std::string name = {};
  /// The number of fp32 values, from 0 to 16, that the rule keeps for each element.
  int states = 0;
  /// The learning rate, 0 or more. ShardedModel::set_learning_rate changes it.
  float lr = 1e-3F;
  /// The weight decay, 0 or more, that `update` is given for parameters that decay.
  float weight_decay = 0.0F;
  /// The rule, which must not be empty.
  std::function<void(const ShardUpdate&)> update = {};
};

}  // namespace tessera

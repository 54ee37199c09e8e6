#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tessera/shard/parameter_info.hpp"

namespace tessera {

/// Writes elements [first, first + out.size()) of `parameter`. Each rank asks only for what it
/// holds, so the values depend on the element alone, never on the cut.
using Initializer =
    std::function<void(const ParameterInfo& parameter, std::int64_t first, std::span<float> out)>;

namespace init {

/// Element `i` of parameter `id` drawn from N(0, stddev^2): Philox4x32-10 (Salmon et al., SC11)
/// keyed by `seed`, counter (i / 4, id), lane i % 4, turned normal by Box-Muller.
void fill_normal(std::uint64_t seed, std::uint32_t id, std::int64_t first, float stddev,
                 std::span<float> out);

/// What the elements of a parameter are drawn from.
struct Distribution {
  enum class Kind : std::uint8_t { constant, normal };
  Kind kind = Kind::constant;
  float number = 0.0F;  ///< the constant, or the standard deviation
};

/// An Initializer that can be asked what it would write: the model lets the device make its normal
/// numbers, and nothing passes through the host. On CUDA some elements then differ from the host's
/// in the last bit: logarithm, sine and cosine are the device's own.
struct Drawn {
  std::uint64_t seed = 0;
  std::function<Distribution(const ParameterInfo& parameter)> distribution;

  void operator()(const ParameterInfo& parameter, std::int64_t first, std::span<float> out) const;
};

/// Every parameter N(0, stddev^2): a Drawn.
[[nodiscard]] Initializer normal(std::uint64_t seed, float stddev);
/// Every element `value`.
[[nodiscard]] Initializer constant(float value);

}  // namespace init

}  // namespace tessera

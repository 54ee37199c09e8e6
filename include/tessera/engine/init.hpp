#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tessera/shard/parameter_info.hpp"

namespace tessera {

/// A function that writes the initial values of elements [first, first + out.size()) of `parameter`
/// to `out`, in host memory. Each rank asks only for the elements that it keeps: a value must
/// depend on the element only, not on how the parameter is cut. It runs on the rank's thread in
/// `materialize`, which passes on its exceptions.
using Initializer =
    std::function<void(const ParameterInfo& parameter, std::int64_t first, std::span<float> out)>;

/// Initializers for ShardedModel::materialize.
namespace init {

/// Writes elements [first, first + out.size()) of parameter `id`, drawn from N(0, stddev^2), to
/// `out`, in host memory. Element `i` is lane i % 4 of Philox4x32-10 (Salmon et al., SC11) keyed by
/// `seed` at counter (i / 4, id), made normal by Box-Muller. Throws ContractError unless `stddev`
/// is finite, 0 or more.
void fill_normal(std::uint64_t seed, std::uint32_t id, std::int64_t first, float stddev,
                 std::span<float> out);

/// The distribution from which the elements of a parameter are drawn.
struct Distribution {
  /// The kinds of distribution.
  enum class Kind : std::uint8_t {
    constant,  ///< Every element is `number`.
    normal,    ///< Elements are drawn from N(0, number^2).
  };
  /// The kind of this distribution.
  Kind kind = Kind::constant;
  /// The constant, or the standard deviation of a normal distribution around 0.
  float number = 0.0F;
};

/// An Initializer whose distributions are known, so that the device draws the values itself and
/// nothing is copied from the host. On CUDA some elements differ from the host's in the last bit,
/// because the device has its own logarithm, sine and cosine.
struct Drawn {
  std::uint64_t seed = 0;  ///< The key of the random numbers.
  /// Returns the distribution of a parameter. The function must not be empty.
  std::function<Distribution(const ParameterInfo& parameter)> distribution;

  /// Writes the values on the host, as every Initializer does.
  void operator()(const ParameterInfo& parameter, std::int64_t first, std::span<float> out) const;
};

/// Returns an Initializer (a Drawn) that draws every element from N(0, stddev^2). Throws
/// ContractError unless `stddev` is finite, 0 or more.
[[nodiscard]] Initializer normal(std::uint64_t seed, float stddev);
/// Returns an Initializer that sets every element to `value`.
[[nodiscard]] Initializer constant(float value);

}  // namespace init

}  // namespace tessera

#pragma once

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "nn/nn_support.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test {

// Sizes without common divisors.
inline constexpr nn::BatchShape kShape{.batch = 3, .seq = 17};
inline constexpr std::int64_t kRows = 51;
inline constexpr std::int64_t kHidden = 36;
inline constexpr std::int64_t kHeads = 3;
inline constexpr std::int64_t kClasses = 101;

/// Relative to a tensor's norm: against float64, of a whole model with one layer. A layer alone has
/// a part of its roundings.
inline const double kLayerTolerance =
    against_exact({.layers = 1, .hidden = kHidden, .heads = kHeads, .vocab = kClasses, .seq = 17},
                  kRows)
        .gradient;

inline std::string name_in_unit(const ParameterInfo& parameter) {
  return parameter.name;
}

/// A model of one unit, on one rank, with given weights.
class OneUnit {
 public:
  OneUnit(World& world, std::vector<ParameterSpec> parameters, const Tensors& weights)
      : model_{world}, unit_{model_.add_unit("layer", std::move(parameters))} {
    model_.materialize(initial_from(weights, name_in_unit));
    model_.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
  }

  void run(const std::function<void(const ForwardScope&)>& forward,
           const std::function<void(const BackwardScope&)>& backward) {
    forward(model_.forward(unit_));
    backward(model_.backward(unit_));
  }
  Tensors gradients() { return state_of(model_, StateTensor::gradients, name_in_unit); }

 private:
  ShardedModel model_;
  Unit unit_;
};

inline void on_one_rank(const std::function<void(World&)>& body) {
  run_ranks(1, body);
}

inline Tensors linear_weights(const std::string& prefix, std::int64_t in, std::int64_t out,
                              std::uint32_t seed) {
  return {{prefix + ".weight", random_matrix(in, out, seed, 0.3)},
          {prefix + ".bias", random_matrix(1, out, seed + 1, 0.3)}};
}

inline Tensors merged(std::initializer_list<Tensors> parts) {
  Tensors all;
  for (const Tensors& part : parts) { all.insert(part.begin(), part.end()); }
  return all;
}

inline Tensors without_prefix(const Tensors& tensors, std::size_t length) {
  Tensors result;
  for (const auto& [name, tensor] : tensors) { result.emplace(name.substr(length), tensor); }
  return result;
}

/// Output of a layer: its previous contents must not matter.
inline std::vector<float> room(std::int64_t elems) {
  return std::vector<float>(static_cast<std::size_t>(elems), std::nanf(""));
}

}  // namespace tessera::test

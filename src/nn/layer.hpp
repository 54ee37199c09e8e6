#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/norm.hpp"
#include "tessera/nn/tensor_ranks.hpp"

namespace tessera::nn {

/// Where to add the gradient of `name`; null if it is frozen.
inline Values gradient_or_null(const BackwardScope& scope, std::string_view name) {
  return scope.has_grad(name) ? Values{scope.grad(name)} : Values{};
}

/// Where and how to write a whole gradient; null if it is frozen.
struct Gradient {
  Values to;
  kernels::Write write = kernels::Write::add;

  Gradient(const BackwardScope& scope, std::string_view name) {
    if (!scope.has_grad(name)) { return; }
    write = scope.write(name);
    to = scope.grad(name);
  }
};

/// Cuts a parameter along `tensor`, if there are several ranks, and returns the shape of this
/// rank's part.
inline Shape cut_along(ParameterSpec& parameter, const TensorCut& cut, const TensorRanks& ranks) {
  if (ranks.size() == 1) { return parameter.shape; }
  parameter.cut = cut;
  return TensorPart{parameter.shape, cut, ranks.place()}.shape();
}

/// This rank's indices of `extent`, cut in one section.
inline Range part_of(std::int64_t extent, const TensorCut& cut, const TensorRanks& ranks) {
  const TensorPart part{Shape{extent}, {.granule = cut.granule}, ranks.place()};
  return {part.first_index(), part.elems()};
}

/// The options of a decoder's norms over rows.
inline NormOptions norm_options(const DecoderConfig& config, std::optional<DType> dtype,
                                const TensorRanks& ranks) {
  return {.kind = config.norm,
          .eps = config.norm_eps,
          .dtype = dtype,
          .gradient = ranks.row_gradient()};
}

/// The specs of several layers, in order.
inline std::vector<ParameterSpec> joined(std::initializer_list<std::vector<ParameterSpec>> lists) {
  std::vector<ParameterSpec> all;
  for (const auto& list : lists) { all.insert(all.end(), list.begin(), list.end()); }
  return all;
}

}  // namespace tessera::nn

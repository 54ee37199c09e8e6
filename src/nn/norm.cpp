#include "tessera/nn/norm.hpp"

#include "nn/layer.hpp"
#include "tessera/kernels/layer_norm.hpp"
#include "tessera/kernels/rms_norm.hpp"

namespace tessera::nn {
Norm::Norm(std::string_view prefix, std::int64_t size, const NormOptions& options)
    : weight_{std::string{prefix} + ".weight"},
      bias_{std::string{prefix} + ".bias"},
      size_{size},
      options_{options} {}

std::vector<ParameterSpec> Norm::parameters() const {
  const auto spec = [&](const std::string& name) -> ParameterSpec {
    return {.name = name,
            .shape = {size_},
            .dtype = options_.dtype,
            .tensor_gradient = options_.gradient};
  };
  if (!has_mean()) { return {spec(weight_)}; }
  return {spec(weight_), spec(bias_)};
}

void Norm::forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows) const {
  if (!has_mean()) {
    return kernels::rms_norm_forward({.x = saved.x,
                                      .weight = scope[weight_],
                                      .y = y,
                                      .inverse_rms = saved.inverse,
                                      .rows = rows,
                                      .columns = size_,
                                      .eps = options_.eps},
                                     scope.stream());
  }
  kernels::layer_norm_forward({.x = saved.x,
                               .weight = scope[weight_],
                               .bias = scope[bias_],
                               .y = y,
                               .mean = saved.mean,
                               .inverse_std = saved.inverse,
                               .rows = rows,
                               .columns = size_},
                              scope.stream());
}

void Norm::backward(const BackwardScope& scope, const Saved& saved, ConstValues dy, Values dx,
                    std::int64_t rows) const {
  if (!has_mean()) {
    return kernels::rms_norm_backward({.x = saved.x,
                                       .weight = scope[weight_],
                                       .inverse_rms = saved.inverse,
                                       .dy = dy,
                                       .dx = dx,
                                       .dweight = gradient_or_null(scope, weight_),
                                       .rows = rows,
                                       .columns = size_},
                                      scope.stream());
  }
  const Gradient dweight{scope, weight_};
  const Gradient dbias{scope, bias_};
  kernels::layer_norm_backward({.x = saved.x,
                                .weight = scope[weight_],
                                .mean = saved.mean,
                                .inverse_std = saved.inverse,
                                .dy = dy,
                                .dx = dx,
                                .dweight = dweight.to,
                                .dbias = dbias.to,
                                .rows = rows,
                                .columns = size_,
                                .dweight_write = dweight.write,
                                .dbias_write = dbias.write},
                               scope.stream());
}

void Norm::input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dx,
                          std::int64_t rows) const {
  if (!has_mean()) {
    return kernels::rms_norm_backward({.x = saved.x,
                                       .weight = scope[weight_],
                                       .inverse_rms = saved.inverse,
                                       .dy = dy,
                                       .dx = dx,
                                       .dweight = {},
                                       .rows = rows,
                                       .columns = size_},
                                      scope.stream());
  }
  kernels::layer_norm_backward({.x = saved.x,
                                .weight = scope[weight_],
                                .mean = saved.mean,
                                .inverse_std = saved.inverse,
                                .dy = dy,
                                .dx = dx,
                                .dweight = {},
                                .dbias = {},
                                .rows = rows,
                                .columns = size_},
                               scope.stream());
}

}  // namespace tessera::nn

#include "tessera/nn/layer_norm.hpp"

#include "nn/layer.hpp"
#include "tessera/kernels/layer_norm.hpp"

namespace tessera::nn {

LayerNorm::LayerNorm(std::string_view prefix, std::int64_t size, std::optional<DType> dtype,
                     TensorGradient gradient)
    : weight_{std::string{prefix} + ".weight"},
      bias_{std::string{prefix} + ".bias"},
      size_{size},
      dtype_{dtype},
      gradient_{gradient} {}

std::vector<ParameterSpec> LayerNorm::parameters() const {
  return {{.name = weight_, .shape = {size_}, .dtype = dtype_, .tensor_gradient = gradient_},
          {.name = bias_, .shape = {size_}, .dtype = dtype_, .tensor_gradient = gradient_}};
}

void LayerNorm::forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows) const {
  kernels::layer_norm_forward({.x = saved.x,
                               .weight = scope[weight_],
                               .bias = scope[bias_],
                               .y = y,
                               .mean = saved.mean,
                               .inverse_std = saved.inverse_std,
                               .rows = rows,
                               .columns = size_},
                              scope.stream());
}

void LayerNorm::backward(const BackwardScope& scope, const Saved& saved, ConstValues dy, Values dx,
                         std::int64_t rows) const {
  const Gradient dweight{scope, weight_};
  const Gradient dbias{scope, bias_};
  kernels::layer_norm_backward({.x = saved.x,
                                .weight = scope[weight_],
                                .mean = saved.mean,
                                .inverse_std = saved.inverse_std,
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

void LayerNorm::input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dx,
                               std::int64_t rows) const {
  kernels::layer_norm_backward({.x = saved.x,
                                .weight = scope[weight_],
                                .mean = saved.mean,
                                .inverse_std = saved.inverse_std,
                                .dy = dy,
                                .dx = dx,
                                .dweight = {},
                                .dbias = {},
                                .rows = rows,
                                .columns = size_},
                               scope.stream());
}

}  // namespace tessera::nn

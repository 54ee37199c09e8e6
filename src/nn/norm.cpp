#include "tessera/nn/norm.hpp"

#include "nn/layer.hpp"
#include "tessera/kernels/layer_norm.hpp"
#include "tessera/kernels/rms_norm.hpp"

namespace tessera::nn {
namespace {

// The gradient of the input alone: those of the parameters are null.
kernels::RMSNormBackward rms_norm_gradient(const Norm::Saved& saved, ConstValues weight,
                                           ConstValues dy, Values dx, std::int64_t rows,
                                           std::int64_t columns) {
  return {.x = saved.x,
          .weight = weight,
          .inverse_rms = saved.inverse,
          .dy = dy,
          .dx = dx,
          .dweight = {},
          .rows = rows,
          .columns = columns};
}

kernels::LayerNormBackward layer_norm_gradient(const Norm::Saved& saved, ConstValues weight,
                                               ConstValues dy, Values dx, std::int64_t rows,
                                               std::int64_t columns) {
  return {.x = saved.x,
          .weight = weight,
          .mean = saved.mean,
          .inverse_std = saved.inverse,
          .dy = dy,
          .dx = dx,
          .dweight = {},
          .dbias = {},
          .rows = rows,
          .columns = columns};
}

}  // namespace

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
    auto args = rms_norm_gradient(saved, scope[weight_], dy, dx, rows, size_);
    args.dweight = gradient_or_null(scope, weight_);
    return kernels::rms_norm_backward(args, scope.stream());
  }
  const Gradient dweight{scope, weight_};
  const Gradient dbias{scope, bias_};
  auto args = layer_norm_gradient(saved, scope[weight_], dy, dx, rows, size_);
  args.dweight = dweight.to;
  args.dbias = dbias.to;
  args.dweight_write = dweight.write;
  args.dbias_write = dbias.write;
  kernels::layer_norm_backward(args, scope.stream());
}

void Norm::input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dx,
                          std::int64_t rows) const {
  if (!has_mean()) {
    return kernels::rms_norm_backward(rms_norm_gradient(saved, scope[weight_], dy, dx, rows, size_),
                                      scope.stream());
  }
  kernels::layer_norm_backward(layer_norm_gradient(saved, scope[weight_], dy, dx, rows, size_),
                               scope.stream());
}

}  // namespace tessera::nn

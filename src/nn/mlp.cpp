#include "tessera/nn/mlp.hpp"

#include <string>

#include "nn/layer.hpp"
#include "tessera/kernels/gelu.hpp"

namespace tessera::nn {

MLP::MLP(std::string_view prefix, std::int64_t hidden, const TensorRanks& ranks)
    : c_fc_{std::string{prefix} + ".c_fc", hidden, 4 * hidden, ranks},
      c_proj_{std::string{prefix} + ".c_proj", 4 * hidden, hidden, ranks} {}

std::vector<ParameterSpec> MLP::parameters() const {
  return joined({c_fc_.parameters(), c_proj_.parameters()});
}

void MLP::activate(const Scope& scope, const Saved& saved, std::int64_t rows) const {
  c_fc_.forward_gelu(scope, saved.x, saved.wide, saved.activated, rows);
}

void MLP::forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows,
                  ConstValues residual) const {
  activate(scope, saved, rows);
  c_proj_.forward(scope, saved.activated, y, rows, residual, saved.whole);
}

void MLP::backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                   std::int64_t rows) const {
  const Values dwide = flow.scratch;
  ConstValues activated = saved.activated;
  if (saved.gelu_again) {  // c_proj has read it when it writes dwide
    kernels::gelu_forward(saved.wide, dwide, rows * columns(), scope.stream());
    activated = dwide;
  }
  c_proj_.backward_gelu(scope, activated, flow.dy, saved.wide, dwide, rows);
  c_fc_.backward(scope, saved.x, dwide, flow.dx, rows);
}

void MLP::input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dwide,
                         Values dx, std::int64_t rows) const {
  c_proj_.input_gradient_gelu(scope, dy, saved.wide, dwide, rows);
  c_fc_.input_gradient(scope, dwide, dx, rows);
}

void MLP::parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                              ConstValues dwide, Values scratch, std::int64_t rows) const {
  ConstValues activated = saved.activated;
  if (saved.gelu_again) {
    kernels::gelu_forward(saved.wide, scratch, rows * columns(), scope.stream());
    activated = scratch;
  }
  c_proj_.parameter_gradients(scope, activated, dy, rows);
  c_fc_.parameter_gradients(scope, saved.x, dwide, rows);
}

}  // namespace tessera::nn

#include "tessera/nn/mlp.hpp"

#include <string>

#include "nn/layer.hpp"
#include "tessera/kernels/gelu.hpp"
#include "tessera/kernels/glu.hpp"

namespace tessera::nn {
namespace {

bool gated(MLPKind kind) {
  return kind == MLPKind::swiglu || kind == MLPKind::geglu;
}

kernels::Gate gate_of(MLPKind kind) {
  return kind == MLPKind::swiglu ? kernels::Gate::silu : kernels::Gate::gelu_tanh;
}

kernels::GELU gelu_of(MLPKind kind) {
  return kind == MLPKind::gelu ? kernels::GELU::exact : kernels::GELU::tanh;
}

}  // namespace

MLP::MLP(std::string_view prefix, const DecoderConfig& config, const TensorRanks& ranks)
    : kind_{config.mlp},
      c_fc_{std::string{prefix} + ".c_fc",
            config.hidden,
            (config.gated() ? 2 : 1) * config.mlp_elems(),
            ranks,
            {.sections = config.gated() ? 2 : 1},
            config.mlp_bias ? Bias::yes : Bias::no},
      c_proj_{std::string{prefix} + ".c_proj",       config.mlp_elems(), config.hidden, ranks, 1,
              config.mlp_bias ? Bias::yes : Bias::no} {}

std::vector<ParameterSpec> MLP::parameters() const {
  return joined({c_fc_.parameters(), c_proj_.parameters()});
}

void MLP::apply(const Scope& scope, ConstValues wide, Values activated, std::int64_t rows) const {
  if (!gated(kind_)) {
    return kernels::gelu_forward(wide, activated, rows * columns(), scope.stream(), gelu_of(kind_));
  }
  kernels::glu_forward({.gate = wide,
                        .up = wide.at(columns()),
                        .y = activated,
                        .rows = rows,
                        .columns = columns(),
                        .row_elems = wide_columns(),
                        .function = gate_of(kind_)},
                       scope.stream());
}

void MLP::apply_backward(const Scope& scope, ConstValues wide, ConstValues dactivated, Values dwide,
                         std::int64_t rows) const {
  if (!gated(kind_)) {
    return kernels::gelu_backward(wide, dactivated, dwide, rows * columns(), scope.stream(),
                                  gelu_of(kind_));
  }
  kernels::glu_backward({.gate = wide,
                         .up = wide.at(columns()),
                         .dy = dactivated,
                         .dgate = dwide,
                         .dup = dwide.at(columns()),
                         .rows = rows,
                         .columns = columns(),
                         .row_elems = wide_columns(),
                         .function = gate_of(kind_)},
                        scope.stream());
}

ConstValues MLP::activated_of(const Scope& scope, const Saved& saved, Values scratch,
                              std::int64_t rows) const {
  if (!saved.activated_again) { return saved.activated; }
  apply(scope, saved.wide, scratch, rows);
  return scratch;
}

void MLP::activate(const Scope& scope, const Saved& saved, std::int64_t rows) const {
  if (fused()) { return c_fc_.forward_gelu(scope, saved.x, saved.wide, saved.activated, rows); }
  c_fc_.forward(scope, saved.x, saved.wide, rows);
  apply(scope, saved.wide, saved.activated, rows);
}

void MLP::forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows,
                  ConstValues residual) const {
  activate(scope, saved, rows);
  c_proj_.forward(scope, saved.activated, y, rows, residual, saved.whole);
}

// c_proj has read what was activated when it writes the gradient to the same place.
void MLP::backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                   std::int64_t rows) const {
  const ConstValues activated = activated_of(scope, saved, flow.scratch, rows);
  Values dwide = flow.scratch;
  if (fused()) {
    c_proj_.backward_gelu(scope, activated, flow.dy, saved.wide, dwide, rows);
  } else {
    c_proj_.backward(scope, activated, flow.dy, flow.scratch, rows);
    if (gated(kind_)) { dwide = saved.wide; }
    apply_backward(scope, saved.wide, flow.scratch, dwide, rows);
  }
  c_fc_.backward(scope, saved.x, dwide, flow.dx, rows);
}

void MLP::input_gradient(const Scope& scope, const Saved& saved, const GradientFlow& flow,
                         Values dwide, std::int64_t rows) const {
  if (fused()) {
    c_proj_.input_gradient_gelu(scope, flow.dy, saved.wide, dwide, rows);
  } else {
    c_proj_.input_gradient(scope, flow.dy, flow.scratch, rows);
    apply_backward(scope, saved.wide, flow.scratch, dwide, rows);
  }
  c_fc_.input_gradient(scope, dwide, flow.dx, rows);
}

void MLP::parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                              ConstValues dwide, Values scratch, std::int64_t rows) const {
  c_proj_.parameter_gradients(scope, activated_of(scope, saved, scratch, rows), dy, rows);
  c_fc_.parameter_gradients(scope, saved.x, dwide, rows);
}

}  // namespace tessera::nn

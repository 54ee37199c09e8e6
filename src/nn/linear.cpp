#include "tessera/nn/linear.hpp"

#include "nn/layer.hpp"
#include "tessera/kernels/bias.hpp"
#include "tessera/kernels/matmul.hpp"

namespace tessera::nn {

using kernels::Epilogue;
using kernels::MatMul;
using kernels::Transpose;

namespace {

/// The product that is the gradient of a weight [in, out].
MatMul gradient_product(const Gradient& dweight, ConstValues x, ConstValues dy, std::int64_t in,
                        std::int64_t out, std::int64_t rows) {
  return {.a = x,
          .b = dy,
          .c = dweight.to,
          .m = in,
          .n = out,
          .k = rows,
          .transpose_a = Transpose::yes,
          .write = dweight.write};
}

}  // namespace

Linear::Linear(std::string_view prefix, std::int64_t in, std::int64_t out, Bias bias)
    : weight_{std::string{prefix} + ".weight"},
      bias_{bias == Bias::yes ? std::string{prefix} + ".bias" : std::string{}},
      in_{in},
      out_{out} {}

std::vector<ParameterSpec> Linear::parameters() const {
  std::vector<ParameterSpec> all{{.name = weight_, .shape = {in_, out_}}};
  if (!bias_.empty()) { all.push_back({.name = bias_, .shape = {out_}}); }
  return all;
}

ConstValues Linear::bias_in(const Scope& scope) const {
  return bias_.empty() ? ConstValues{} : ConstValues{scope[bias_]};
}

void Linear::forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows,
                     ConstValues residual) const {
  kernels::matmul({.a = x,
                   .b = scope[weight_],
                   .c = y,
                   .m = rows,
                   .n = out_,
                   .k = in_,
                   .bias = bias_in(scope),
                   .residual = residual},
                  scope.stream());
}

void Linear::forward_gelu(const Scope& scope, ConstValues x, Values z, Values y,
                          std::int64_t rows) const {
  kernels::matmul({.a = x,
                   .b = scope[weight_],
                   .c = y,
                   .m = rows,
                   .n = out_,
                   .k = in_,
                   .bias = bias_in(scope),
                   .epilogue = Epilogue::gelu,
                   .pre_gelu = z},
                  scope.stream());
}

void Linear::product(const Scope& scope, ConstValues x, Values y, std::int64_t rows) const {
  kernels::matmul({.a = x, .b = scope[weight_], .c = y, .m = rows, .n = out_, .k = in_},
                  scope.stream());
}

void Linear::weight_gradient(const BackwardScope& scope, ConstValues x, ConstValues dy,
                             std::int64_t rows) const {
  if (const Gradient dweight{scope, weight_}; dweight.to) {
    kernels::matmul(gradient_product(dweight, x, dy, in_, out_, rows), scope.stream());
  }
}

void Linear::bias_gradient(const BackwardScope& scope, ConstValues dy, std::int64_t rows) const {
  if (bias_.empty()) { return; }
  if (const Gradient dbias{scope, bias_}; dbias.to) {
    kernels::bias_gradient(dy, dbias.to, rows, out_, dbias.write, scope.stream());
  }
}

void Linear::parameter_gradients(const BackwardScope& scope, ConstValues x, ConstValues dy,
                                 std::int64_t rows) const {
  const Gradient dweight{scope, weight_};
  if (!dweight.to) { return bias_gradient(scope, dy, rows); }
  MatMul product = gradient_product(dweight, x, dy, in_, out_, rows);
  if (!bias_.empty()) {
    const Gradient dbias{scope, bias_};
    product.bias_gradient = dbias.to;
    product.bias_gradient_write = dbias.write;
  }
  kernels::matmul(product, scope.stream());
}

void Linear::input_gradient(const Scope& scope, ConstValues dy, Values dx,
                            std::int64_t rows) const {
  kernels::matmul({.a = dy,
                   .b = scope[weight_],
                   .c = dx,
                   .m = rows,
                   .n = in_,
                   .k = out_,
                   .transpose_b = Transpose::yes},
                  scope.stream());
}

void Linear::input_gradient_gelu(const Scope& scope, ConstValues dy, Values z, Values dz,
                                 std::int64_t rows) const {
  kernels::matmul({.a = dy,
                   .b = scope[weight_],
                   .c = dz,
                   .m = rows,
                   .n = in_,
                   .k = out_,
                   .transpose_b = Transpose::yes,
                   .epilogue = Epilogue::gelu_gradient,
                   .pre_gelu = z},
                  scope.stream());
}

void Linear::backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                      std::int64_t rows) const {
  parameter_gradients(scope, x, dy, rows);
  if (dx) { input_gradient(scope, dy, dx, rows); }
}

void Linear::backward_gelu(const BackwardScope& scope, ConstValues x, ConstValues dy, Values z,
                           Values dz, std::int64_t rows) const {
  parameter_gradients(scope, x, dy, rows);
  input_gradient_gelu(scope, dy, z, dz, rows);
}

}  // namespace tessera::nn

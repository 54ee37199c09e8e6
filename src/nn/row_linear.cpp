#include "tessera/nn/row_linear.hpp"

#include <utility>

#include "nn/layer.hpp"
#include "tessera/base/math.hpp"
#include "tessera/kernels/bias.hpp"
#include "tessera/kernels/elementwise.hpp"

namespace tessera::nn {
namespace {

// Slices of a multiple of this many rows have, in fp32 on a CPU, the bits of the whole product.
constexpr std::int64_t kSliceUnit = 8;

}  // namespace

RowLinear::RowLinear(std::string_view prefix, std::int64_t in, std::int64_t out, TensorRanks ranks,
                     std::int64_t granule, Bias bias)
    : parameters_{Linear{prefix, in, out, bias}.parameters()},
      ranks_{std::move(ranks)},
      out_{out},
      columns_{cut_along(parameters_[0], {0, granule}, ranks_).dims()[0]},
      part_{prefix, columns_, out, bias} {
  if (bias == Bias::yes) { parameters_[1].tensor_gradient = ranks_.row_gradient(); }
}

std::vector<ParameterSpec> RowLinear::parameters() const {
  return parameters_;
}

void RowLinear::forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows,
                        ConstValues residual, Values whole) const {
  if (ranks_.size() == 1) { return part_.forward(scope, x, y, rows, residual); }
  const auto [sequence_parallel, slices] = ranks_.options();
  const Values sum = sequence_parallel ? whole : y;
  const std::int64_t slice = round_up(ceil_div(rows, std::int64_t{slices}), kSliceUnit);
  for (std::int64_t first = 0, some = 0; first < rows; first += some) {
    some = rows - first < slice + kSliceUnit ? rows - first : slice;
    part_.product(scope, x.at(first * columns_), sum.at(first * out_), some);
    ranks_.begin_sum(sum, rows, out_, {first, some});
  }
  ranks_.end_sum();
  const Range own = ranks_.own(rows);
  const Values mine = sum.at(own.first * out_);
  if (parameters_.size() > 1) {
    kernels::add_bias(mine, scope[parameters_[1].name], own.elems, out_, scope.stream());
  }
  if (residual) {
    kernels::add(residual, mine, y, own.elems * out_, scope.stream());
  } else {
    ranks_.copy_own(sum, y, rows, out_);
  }
}

void RowLinear::parameter_gradients(const BackwardScope& scope, ConstValues x, ConstValues dy,
                                    std::int64_t rows) const {
  if (ranks_.size() == 1) { return part_.parameter_gradients(scope, x, dy, rows); }
  // Apart: all ranks have the bias and compute its gradient alike. In the product for the weight
  // its bits could depend on the number of the rank's columns.
  const Range own = ranks_.own(rows);
  part_.weight_gradient(scope, x, dy, rows);
  part_.bias_gradient(scope, dy.at(own.first * out_), own.elems);
}

void RowLinear::backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                         std::int64_t rows) const {
  parameter_gradients(scope, x, dy, rows);
  if (dx) { part_.input_gradient(scope, dy, dx, rows); }
}

void RowLinear::backward_gelu(const BackwardScope& scope, ConstValues x, ConstValues dy, Values z,
                              Values dz, std::int64_t rows) const {
  parameter_gradients(scope, x, dy, rows);
  part_.input_gradient_gelu(scope, dy, z, dz, rows);
}

}  // namespace tessera::nn

#include "tessera/nn/column_linear.hpp"

#include <utility>

#include "nn/layer.hpp"

namespace tessera::nn {

ColumnLinear::ColumnLinear(std::string_view prefix, std::int64_t in, std::int64_t out,
                           TensorRanks ranks, ColumnCut cut, Bias bias)
    : parameters_{Linear{prefix, in, out, bias}.parameters()},
      ranks_{std::move(ranks)},
      in_{in},
      columns_{
          cut_along(parameters_[0], {1, cut.granule, cut.sections, cut.lead}, ranks_).dims()[1]},
      part_{prefix, in, columns_, bias} {
  if (bias == Bias::no) { return; }
  cut_along(parameters_[1], {0, cut.granule, cut.sections, cut.lead}, ranks_);
}

std::vector<ParameterSpec> ColumnLinear::parameters() const {
  return parameters_;
}

void ColumnLinear::forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows) const {
  part_.forward(scope, x, y, rows);
}

void ColumnLinear::forward_gelu(const Scope& scope, ConstValues x, Values z, Values y,
                                std::int64_t rows) const {
  part_.forward_gelu(scope, x, z, y, rows);
}

void ColumnLinear::backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                            std::int64_t rows) const {
  const bool overlaps = ranks_.size() > 1 && dx && dx.data != x.data;
  if (!overlaps) {
    part_.backward(scope, x, dy, dx, rows);
    if (dx) { ranks_.sum(dx, rows, in_); }
    return;
  }
  part_.input_gradient(scope, dy, dx, rows);
  ranks_.begin_sum(dx, rows, in_, {0, rows});
  parameter_gradients(scope, x, dy, rows);
  ranks_.end_sum();
}

void ColumnLinear::input_gradient(const Scope& scope, ConstValues dy, Values dx,
                                  std::int64_t rows) const {
  part_.input_gradient(scope, dy, dx, rows);
  ranks_.sum(dx, rows, in_);
}

}  // namespace tessera::nn

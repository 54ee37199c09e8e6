#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/linear.hpp"
#include "tessera/nn/tensor_ranks.hpp"

namespace tessera::nn {

/// How the columns of a ColumnLinear are cut (see TensorCut).
struct ColumnCut {
  std::int64_t granule = 1;  ///< neighbouring columns that stay together, such as one head's
  int sections = 1;          ///< 3 for queries, keys and values, 2 for the halves of SwiGLU
  std::int64_t lead = 1;     ///< how many times as long the first section and its granules are
};

/// A Linear whose columns are divided among the ranks along `tensor`: each rank has some columns of
/// W and of b, and computes the same columns of y. Its input must be the same on all of these
/// ranks, and a RowLinear that takes y must be cut alike. With one rank it has the bits of a
/// Linear.
class ColumnLinear {
 public:
  /// Makes a layer with the parameters "prefix.weight" [in, out] and, with a bias, "prefix.bias"
  /// [out], whose shapes are those of the whole. Throws ContractError as TensorPart.
  ColumnLinear(std::string_view prefix, std::int64_t in, std::int64_t out, TensorRanks ranks = {},
               ColumnCut cut = {}, Bias bias = Bias::yes);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the number of this rank's columns of y, which may be 0.
  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }

  /// Computes y [rows, columns()] from x [rows, in]. With sequence parallelism the caller has
  /// gathered x (TensorRanks::gather).
  void forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows) const;
  /// Computes y = gelu(z) from z = x W + b, both [rows, columns()], and keeps z for the backward.
  void forward_gelu(const Scope& scope, ConstValues x, Values z, Values y, std::int64_t rows) const;
  /// Adds the gradients of the parameters that are trained, and writes dx [rows, in] unless it is
  /// null: the sum over the ranks, with sequence parallelism only in this rank's own rows. The sum
  /// is communicated while the gradients of parameters are computed, unless dx is x.
  void backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                std::int64_t rows) const;

  // The halves of backward, for schedules that divide it. The first takes a scope of any kind.

  /// Runs the first half of backward: writes dx. The scope may be of any kind.
  void input_gradient(const Scope& scope, ConstValues dy, Values dx, std::int64_t rows) const;
  /// Runs the second half of backward: adds the gradients of the parameters that are trained.
  void parameter_gradients(const BackwardScope& scope, ConstValues x, ConstValues dy,
                           std::int64_t rows) const {
    part_.parameter_gradients(scope, x, dy, rows);
  }

 private:
  std::vector<ParameterSpec> parameters_;
  TensorRanks ranks_;
  std::int64_t in_;
  std::int64_t columns_;
  Linear part_;
};

}  // namespace tessera::nn

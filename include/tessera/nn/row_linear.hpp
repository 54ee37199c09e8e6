#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/linear.hpp"
#include "tessera/nn/tensor_ranks.hpp"

namespace tessera::nn {

/// A Linear whose rows are divided among the ranks along `tensor`: each rank has some rows of W,
/// and multiplies the same columns of x, which are the y of a ColumnLinear. The ranks' products are
/// added, and then the bias, which every rank has whole. With one rank it has the bits of a Linear.
class RowLinear {
 public:
  /// Makes a layer with the parameters "prefix.weight" [in, out] and, with a bias, "prefix.bias"
  /// [out], whose shapes are those of the whole. `granule` neighbouring rows of W stay together.
  /// Throws ContractError as TensorPart.
  RowLinear(std::string_view prefix, std::int64_t in, std::int64_t out, TensorRanks ranks = {},
            std::int64_t granule = 1, Bias bias = Bias::yes);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the number of this rank's columns of x, which may be 0.
  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }

  /// Computes y from x [rows, columns()], and adds `residual` unless it is null. y and residual are
  /// [rows, out], the same on all ranks; with sequence parallelism they are this rank's rows
  /// (TensorRanks::own), and `whole` [rows, out] is overwritten. The arrays must not overlap.
  void forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows,
               ConstValues residual = {}, Values whole = {}) const;
  /// Adds the gradients of the parameters that are trained, and writes dx [rows, columns()] unless
  /// it is null. dy is [rows, out]: with sequence parallelism the caller has gathered it.
  void backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                std::int64_t rows) const;
  /// Does the same as `backward` for x = gelu(z), and writes dz [rows, columns()], the gradient of
  /// z, instead of dx. dz may be x.
  void backward_gelu(const BackwardScope& scope, ConstValues x, ConstValues dy, Values z, Values dz,
                     std::int64_t rows) const;

  // The halves of backward, for schedules that divide it. The first takes a scope of any kind.

  /// Runs the first half of backward: writes dx. The scope may be of any kind.
  void input_gradient(const Scope& scope, ConstValues dy, Values dx, std::int64_t rows) const {
    part_.input_gradient(scope, dy, dx, rows);
  }
  /// Runs the first half of backward for x = gelu(z): writes dz. The scope may be of any kind.
  void input_gradient_gelu(const Scope& scope, ConstValues dy, Values z, Values dz,
                           std::int64_t rows) const {
    part_.input_gradient_gelu(scope, dy, z, dz, rows);
  }
  /// Runs the second half of backward: adds the gradients of the parameters that are trained.
  void parameter_gradients(const BackwardScope& scope, ConstValues x, ConstValues dy,
                           std::int64_t rows) const;

 private:
  std::vector<ParameterSpec> parameters_;
  TensorRanks ranks_;
  std::int64_t out_;
  std::int64_t columns_;
  Linear part_;
};

}  // namespace tessera::nn

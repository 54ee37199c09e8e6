#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"

namespace tessera::nn {

/// Whether a product has a bias.
enum class Bias : std::uint8_t {
  no,   ///< x W
  yes,  ///< x W + b
};

/// A linear layer: y = x W + b with W [in, out], as in Hugging Face's Conv1D. It holds names and
/// sizes only; each call takes the parameters from the scope that it is given.
class Linear {
 public:
  /// Makes a layer with the parameters "prefix.weight" [in, out] and, with a bias, "prefix.bias"
  /// [out].
  Linear(std::string_view prefix, std::int64_t in, std::int64_t out, Bias bias = Bias::yes);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// Computes y [rows, out] from x [rows, in], and adds `residual` [rows, out] unless it is null.
  /// y overlaps neither of them.
  void forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows,
               ConstValues residual = {}) const;
  /// Computes z = x W + b and y = gelu(z), and keeps z for backward. x, z and y must not overlap.
  void forward_gelu(const Scope& scope, ConstValues x, Values z, Values y, std::int64_t rows) const;
  /// Adds the gradients of the parameters that are trained, and writes dx [rows, in] unless it is
  /// null. dx may be x.
  void backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                std::int64_t rows) const;
  /// Does the same as `backward` for x = gelu(z), and writes dz [rows, in], the gradient of z,
  /// instead of dx. dz may be x.
  void backward_gelu(const BackwardScope& scope, ConstValues x, ConstValues dy, Values z, Values dz,
                     std::int64_t rows) const;

  // The parts of forward and backward, for layers and schedules that run them in another order.

  /// Computes y = x W, without the bias.
  void product(const Scope& scope, ConstValues x, Values y, std::int64_t rows) const;
  /// Adds the gradient of the weight, if it is trained, or overwrites it (BackwardScope::write).
  void weight_gradient(const BackwardScope& scope, ConstValues x, ConstValues dy,
                       std::int64_t rows) const;
  /// Does the same for the gradient of the bias, if there is one.
  void bias_gradient(const BackwardScope& scope, ConstValues dy, std::int64_t rows) const;
  /// Does both, in one product where CUDA's recorded algorithms have one for the two together.
  void parameter_gradients(const BackwardScope& scope, ConstValues x, ConstValues dy,
                           std::int64_t rows) const;
  /// Writes dx [rows, in].
  void input_gradient(const Scope& scope, ConstValues dy, Values dx, std::int64_t rows) const;
  /// Writes dz [rows, in], the gradient of z, for x = gelu(z).
  void input_gradient_gelu(const Scope& scope, ConstValues dy, Values z, Values dz,
                           std::int64_t rows) const;

 private:
  [[nodiscard]] ConstValues bias_in(const Scope& scope) const;

  std::string weight_;
  std::string bias_;  ///< empty without one
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace tessera::nn

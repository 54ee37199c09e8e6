#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"

namespace tessera::nn {

/// y = x W + b with W [in, out], as Hugging Face's Conv1D. Holds names and sizes; the parameters
/// are those of the scope it is called with.
class Linear {
 public:
  /// Parameters "prefix.weight" and "prefix.bias".
  Linear(std::string_view prefix, std::int64_t in, std::int64_t out);

  /// To be declared in the unit whose scopes the layer will be called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// x [rows, in], y [rows, out], no overlap.
  void forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows) const;
  /// y = gelu(z) of z = x W + b, which is kept for who needs the slope. No overlap.
  void forward_gelu(const Scope& scope, ConstValues x, Values z, Values y, std::int64_t rows) const;
  /// Adds the gradients of the parameters that have one, and writes dx [rows, in] unless null.
  void backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                std::int64_t rows) const;
  /// As `backward`, of an x that is gelu(z): what is written is the gradient of z [rows, in].
  void backward_gelu(const BackwardScope& scope, ConstValues x, ConstValues dy, Values z, Values dz,
                     std::int64_t rows) const;

 private:
  void add_parameter_gradients(const BackwardScope& scope, ConstValues x, ConstValues dy,
                               std::int64_t rows) const;

  std::string weight_;
  std::string bias_;
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace tessera::nn

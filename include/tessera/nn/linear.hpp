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
  Linear(World& world, std::string_view prefix, std::int64_t in, std::int64_t out);

  /// To be declared in the unit whose scopes the layer will be called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// x [rows, in], y [rows, out], no overlap.
  void forward(const Scope& scope, ConstValues x, Values y, std::int64_t rows) const;
  /// Adds the gradients of the parameters that have one, and writes dx [rows, in] unless null.
  void backward(const BackwardScope& scope, ConstValues x, ConstValues dy, Values dx,
                std::int64_t rows) const;

 private:
  World* world_;
  std::string weight_;
  std::string bias_;
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace tessera::nn

#include "tessera/engine/tensor.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void require_fp32(DType dtype) {
  if (dtype != DType::fp32) {
    throw ContractError{
        fmt::format("a tensor of {} was taken as float; take it as Values", to_string(dtype))};
  }
}

}  // namespace

void Lifetime::refuse() const {
  throw ContractError{
      fmt::format("a {} tensor of unit '{}' is used after its scope ended, when its memory may "
                  "hold another unit; take it from an open scope",
                  to_string(category_), *unit_)};
}

ConstTensor::operator const float*() const {
  require_fp32(view_.dtype);
  return static_cast<const float*>(data());
}

Tensor::operator float*() const {
  require_fp32(view_.dtype);
  return static_cast<float*>(data());
}

}  // namespace tessera

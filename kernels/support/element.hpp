#pragma once

#include <cstdint>

#include "tessera/base/half.hpp"
#include "tessera/base/values.hpp"

namespace tessera::kernels::reference {

/// Element `i` as a float, exactly. For references: one element, one branch.
inline float read(ConstValues values, std::int64_t i) {
  switch (values.dtype) {
    case DType::bf16:
      return values.as<bfloat16>()[i].to_float();
    case DType::fp16:
      return values.as<float16>()[i].to_float();
    default:
      return values.as<float>()[i];
  }
}

/// Stores `value` as element `i`, rounded to nearest, ties to even.
inline void write(Values values, std::int64_t i, float value) {
  switch (values.dtype) {
    case DType::bf16:
      values.as<bfloat16>()[i] = bfloat16::from_float(value);
      return;
    case DType::fp16:
      values.as<float16>()[i] = float16::from_float(value);
      return;
    default:
      values.as<float>()[i] = value;
  }
}

}  // namespace tessera::kernels::reference

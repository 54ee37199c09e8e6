#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/base/error.hpp"
#include "tessera/base/values.hpp"

namespace tessera::kernels {

/// Returns body(std::type_identity<T>{}), where T is the type of `dtype`: float, bfloat16 or
/// float16. ContractError for fp64, which is only for sums.
template <class Body>
decltype(auto) with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::bf16:
      return body(std::type_identity<bfloat16>{});
    case DType::fp16:
      return body(std::type_identity<float16>{});
    case DType::fp32:
      break;
    case DType::fp64:
      throw ContractError{"a kernel is given values of fp64: use fp32, bf16 or fp16"};
  }
  return body(std::type_identity<float>{});
}

template <class First, class Second>
struct Types {};

/// Returns body(Types<A, B>{}), like with_type.
template <class Body>
decltype(auto) with_types(DType first, DType second, Body&& body) {
  return with_type(first, [&]<class A>(std::type_identity<A>) -> decltype(auto) {
    return with_type(second, [&]<class B>(std::type_identity<B>) -> decltype(auto) {
      return body(Types<A, B>{});
    });
  });
}

/// Element `i` of any dtype: for references, which need not be fast.
[[nodiscard]] inline float element(ConstValues values, std::int64_t i) {
  return with_type(values.dtype, [&]<class T>(std::type_identity<T>) -> float {
    if constexpr (std::is_same_v<T, float>) {
      return values.as<float>()[i];
    } else {
      return values.as<T>()[i].to_float();
    }
  });
}

/// Stores `value` as element `i`, rounded to nearest.
inline void set_element(Values values, std::int64_t i, float value) {
  with_type(values.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, float>) {
      values.as<float>()[i] = value;
    } else {
      values.as<T>()[i] = T::from_float(value);
    }
  });
}

/// Adds `value` to element `i`, in float64.
inline void add_element(Values to, std::int64_t i, double value) {
  set_element(to, i, static_cast<float>(static_cast<double>(element(to, i)) + value));
}

}  // namespace tessera::kernels

#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.hpp"
#include "tessera/base/half.hpp"

namespace tessera {

/// The address of an array and the dtype of its elements: the argument type of kernels of mixed
/// precision. Like a pointer, it owns nothing, knows no length, and may be null. Typed pointers
/// convert to it implicitly.
struct Values {
  void* data = nullptr;       ///< the first element; may be null
  DType dtype = DType::fp32;  ///< type of the elements

  /// A null address.
  Values() = default;
  /// Elements of type `dtype_` at `data_`.
  Values(void* data_, DType dtype_) noexcept : data{data_}, dtype{dtype_} {}
  /// Converts a pointer to fp32 elements.
  Values(float* data_) noexcept : data{data_}, dtype{DType::fp32} {}
  /// Converts a pointer to bf16 elements.
  Values(bfloat16* data_) noexcept : data{data_}, dtype{DType::bf16} {}
  /// Converts a pointer to fp16 elements.
  Values(float16* data_) noexcept : data{data_}, dtype{DType::fp16} {}
  /// A null address.
  Values(std::nullptr_t) noexcept {}

  /// Returns whether the address is not null.
  [[nodiscard]] explicit operator bool() const noexcept { return data != nullptr; }
  /// Returns the address of element `elems`, with the same dtype.
  [[nodiscard]] Values at(std::int64_t elems) const noexcept {
    return {static_cast<std::byte*>(data) + elems * static_cast<std::int64_t>(size_of(dtype)),
            dtype};
  }
  /// Returns the address as a typed pointer. T must be the type of `dtype`, which is not checked.
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// The address of an array that is only read, and the dtype of its elements. Like a pointer, it
/// owns nothing, knows no length, and may be null. Values and typed pointers convert to it
/// implicitly.
struct ConstValues {
  const void* data = nullptr;  ///< the first element; may be null
  DType dtype = DType::fp32;   ///< type of the elements

  /// A null address.
  ConstValues() = default;
  /// Elements of type `dtype_` at `data_`.
  ConstValues(const void* data_, DType dtype_) noexcept : data{data_}, dtype{dtype_} {}
  /// Converts an address that may be written.
  ConstValues(Values values) noexcept : data{values.data}, dtype{values.dtype} {}
  /// Converts a pointer to fp32 elements.
  ConstValues(const float* data_) noexcept : data{data_}, dtype{DType::fp32} {}
  /// Converts a pointer to bf16 elements.
  ConstValues(const bfloat16* data_) noexcept : data{data_}, dtype{DType::bf16} {}
  /// Converts a pointer to fp16 elements.
  ConstValues(const float16* data_) noexcept : data{data_}, dtype{DType::fp16} {}
  /// A null address.
  ConstValues(std::nullptr_t) noexcept {}

  /// Returns whether the address is not null.
  [[nodiscard]] explicit operator bool() const noexcept { return data != nullptr; }
  /// Returns the address of element `elems`, with the same dtype.
  [[nodiscard]] ConstValues at(std::int64_t elems) const noexcept {
    return {static_cast<const std::byte*>(data) + elems * static_cast<std::int64_t>(size_of(dtype)),
            dtype};
  }
  /// Returns the address as a typed pointer. T must be the type of `dtype`, which is not checked.
  template <class T>
  [[nodiscard]] const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
};

}  // namespace tessera

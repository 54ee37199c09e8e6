#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.hpp"
#include "tessera/base/half.hpp"

namespace tessera {

/// The address of an array and the dtype of its elements: what a kernel of mixed precision takes.
/// Like a pointer, it owns nothing, knows no length, and may be null. Typed pointers convert to it
/// implicitly.
struct Values {
  void* data = nullptr;
  DType dtype = DType::fp32;

  Values() = default;
  Values(void* data_, DType dtype_) noexcept : data{data_}, dtype{dtype_} {}
  Values(float* data_) noexcept : data{data_}, dtype{DType::fp32} {}
  Values(bfloat16* data_) noexcept : data{data_}, dtype{DType::bf16} {}
  Values(float16* data_) noexcept : data{data_}, dtype{DType::fp16} {}
  Values(std::nullptr_t) noexcept {}

  /// Whether the address is not null.
  [[nodiscard]] explicit operator bool() const noexcept { return data != nullptr; }
  /// The values from element `elems` on.
  [[nodiscard]] Values at(std::int64_t elems) const noexcept {
    return {static_cast<std::byte*>(data) + elems * static_cast<std::int64_t>(size_of(dtype)),
            dtype};
  }
  /// The address as a typed pointer. T must be the type of `dtype`, which is not checked.
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// Values that are only read.
struct ConstValues {
  const void* data = nullptr;
  DType dtype = DType::fp32;

  ConstValues() = default;
  ConstValues(const void* data_, DType dtype_) noexcept : data{data_}, dtype{dtype_} {}
  ConstValues(Values values) noexcept : data{values.data}, dtype{values.dtype} {}
  ConstValues(const float* data_) noexcept : data{data_}, dtype{DType::fp32} {}
  ConstValues(const bfloat16* data_) noexcept : data{data_}, dtype{DType::bf16} {}
  ConstValues(const float16* data_) noexcept : data{data_}, dtype{DType::fp16} {}
  ConstValues(std::nullptr_t) noexcept {}

  /// Whether the address is not null.
  [[nodiscard]] explicit operator bool() const noexcept { return data != nullptr; }
  /// The values from element `elems` on.
  [[nodiscard]] ConstValues at(std::int64_t elems) const noexcept {
    return {static_cast<const std::byte*>(data) + elems * static_cast<std::int64_t>(size_of(dtype)),
            dtype};
  }
  /// The address as a typed pointer. T must be the type of `dtype`, which is not checked.
  template <class T>
  [[nodiscard]] const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
};

}  // namespace tessera

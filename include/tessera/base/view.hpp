#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.hpp"
#include "tessera/base/values.hpp"

namespace tessera {

/// `elems` neighbouring elements in device memory, not owned. Valid while their owner lives.
struct View {
  void* data = nullptr;
  std::int64_t elems = 0;
  DType dtype = DType::fp32;

  /// The size of all elements.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(elems) * size_of(dtype);
  }
  /// The address and the dtype, without the length.
  [[nodiscard]] Values values() const noexcept { return {data, dtype}; }
  /// The elements [first, first + count), which must lie within this view; this is not checked.
  [[nodiscard]] View slice(std::int64_t first, std::int64_t count) const noexcept {
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first) * size_of(dtype), count,
            dtype};
  }
};

/// A View that is only read.
struct ConstView {
  const void* data = nullptr;
  std::int64_t elems = 0;
  DType dtype = DType::fp32;

  ConstView() = default;
  ConstView(const void* data_, std::int64_t elems_, DType dtype_) noexcept
      : data{data_}, elems{elems_}, dtype{dtype_} {}
  ConstView(View view) noexcept : data{view.data}, elems{view.elems}, dtype{view.dtype} {}

  /// The size of all elements.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(elems) * size_of(dtype);
  }
  /// The address and the dtype, without the length.
  [[nodiscard]] ConstValues values() const noexcept { return {data, dtype}; }
  /// The elements [first, first + count), which must lie within this view; this is not checked.
  [[nodiscard]] ConstView slice(std::int64_t first, std::int64_t count) const noexcept {
    return {static_cast<const std::byte*>(data) + static_cast<std::size_t>(first) * size_of(dtype),
            count, dtype};
  }
};

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.hpp"
#include "tessera/base/values.hpp"

namespace tessera {

/// Neighbouring elements in device memory. It owns nothing, and is valid while the memory's owner
/// lives.
struct View {
  void* data = nullptr;       ///< the first element
  std::int64_t elems = 0;     ///< number of elements
  DType dtype = DType::fp32;  ///< type of the elements

  /// Returns the size of all elements.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(elems) * size_of(dtype);
  }
  /// Returns the address and the dtype, without the length.
  [[nodiscard]] Values values() const noexcept { return {data, dtype}; }
  /// Returns the elements [first, first + count), which must lie within this view; this is not
  /// checked.
  [[nodiscard]] View slice(std::int64_t first, std::int64_t count) const noexcept {
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first) * size_of(dtype), count,
            dtype};
  }
};

/// Neighbouring elements in device memory that are only read. It owns nothing, and is valid while
/// the memory's owner lives.
struct ConstView {
  const void* data = nullptr;  ///< the first element
  std::int64_t elems = 0;      ///< number of elements
  DType dtype = DType::fp32;   ///< type of the elements

  /// A view of no elements.
  ConstView() = default;
  /// `elems_` elements of type `dtype_` at `data_`.
  ConstView(const void* data_, std::int64_t elems_, DType dtype_) noexcept
      : data{data_}, elems{elems_}, dtype{dtype_} {}
  /// Converts a view that may be written.
  ConstView(View view) noexcept : data{view.data}, elems{view.elems}, dtype{view.dtype} {}

  /// Returns the size of all elements.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(elems) * size_of(dtype);
  }
  /// Returns the address and the dtype, without the length.
  [[nodiscard]] ConstValues values() const noexcept { return {data, dtype}; }
  /// Returns the elements [first, first + count), which must lie within this view; this is not
  /// checked.
  [[nodiscard]] ConstView slice(std::int64_t first, std::int64_t count) const noexcept {
    return {static_cast<const std::byte*>(data) + static_cast<std::size_t>(first) * size_of(dtype),
            count, dtype};
  }
};

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace tessera {

/// The extents of a tensor, outermost first. Rank 0 is a scalar of one element.
class Shape {
 public:
  Shape() = default;
  /// ContractError if an extent is negative or the number of elements overflows 63 bits.
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::vector<std::int64_t> dims);

  [[nodiscard]] const std::vector<std::int64_t>& dims() const noexcept { return dims_; }
  [[nodiscard]] int rank() const noexcept { return static_cast<int>(dims_.size()); }
  /// The number of extents, as rank(); of elements, see elems().
  [[nodiscard]] std::size_t size() const noexcept { return dims_.size(); }
  /// Extent `dim`, the outermost at 0. ContractError, with the shape, if it has none there.
  [[nodiscard]] std::int64_t operator[](std::size_t dim) const;
  [[nodiscard]] std::int64_t elems() const noexcept { return elems_; }
  /// "[3, 4]".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<std::int64_t> dims_;
  std::int64_t elems_ = 1;
};

}  // namespace tessera

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
  /// The shape of a scalar.
  Shape() = default;
  /// A shape with the extents `dims`. Throws ContractError if one is negative, or if there are 2^63
  /// elements or more.
  Shape(std::initializer_list<std::int64_t> dims);
  /// A shape with the extents `dims`. Throws ContractError if one is negative, or if there are 2^63
  /// elements or more.
  explicit Shape(std::vector<std::int64_t> dims);

  /// Returns all extents.
  [[nodiscard]] const std::vector<std::int64_t>& dims() const noexcept { return dims_; }
  /// Returns the number of extents.
  [[nodiscard]] int rank() const noexcept { return static_cast<int>(dims_.size()); }
  /// Returns the number of extents, like rank(); elems() counts elements.
  [[nodiscard]] std::size_t size() const noexcept { return dims_.size(); }
  /// Returns extent `dim`, counted from 0 at the outermost. Throws ContractError with the shape
  /// unless `dim` is below size().
  [[nodiscard]] std::int64_t operator[](std::size_t dim) const;
  /// Returns the number of elements: the product of all extents.
  [[nodiscard]] std::int64_t elems() const noexcept { return elems_; }
  /// Returns the extents as text: "[3, 4]".
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<std::int64_t> dims_;
  std::int64_t elems_ = 1;
};

}  // namespace tessera

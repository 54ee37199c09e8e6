#include "tessera/base/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

std::string text_of(const std::vector<std::int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

[[noreturn]] void refuse(const std::vector<std::int64_t>& dims, const char* why) {
  throw ContractError(fmt::format("shape {} {}", text_of(dims), why));
}

std::int64_t count(const std::vector<std::int64_t>& dims) {
  if (std::ranges::any_of(dims, [](std::int64_t d) { return d < 0; })) {
    refuse(dims, "has a negative extent");
  }
  // Checked first: the product of the other extents may overflow and does not matter.
  if (std::ranges::find(dims, 0) != dims.end()) { return 0; }
  std::int64_t elems = 1;
  for (const std::int64_t d : dims) {
    if (__builtin_mul_overflow(elems, d, &elems)) { refuse(dims, "has 2^63 elements or more"); }
  }
  return elems;
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape{std::vector<std::int64_t>(dims)} {}

Shape::Shape(std::vector<std::int64_t> dims) : dims_{std::move(dims)}, elems_{count(dims_)} {}

std::int64_t Shape::operator[](std::size_t dim) const {
  if (dim >= dims_.size()) {
    throw ContractError(fmt::format("shape {} has {} extents, and none at index {}", to_string(),
                                    dims_.size(), dim));
  }
  return dims_[dim];
}

std::string Shape::to_string() const {
  return text_of(dims_);
}

}  // namespace tessera

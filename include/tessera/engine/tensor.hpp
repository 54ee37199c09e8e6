#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/base/shape.hpp"
#include "tessera/base/values.hpp"
#include "tessera/base/view.hpp"
#include "tessera/memory/category.hpp"

namespace tessera {

/// How long a tensor may be looked at: until the scope that it was taken from ends.
class Lifetime {
 public:
  /// `*scopes` counts the scopes of the unit that have ended. `category`: whose memory it is.
  /// `life` keeps both references.
  Lifetime(std::shared_ptr<const void> life, const std::uint64_t& scopes, Category category,
           const std::string& unit) noexcept
      : life_{std::move(life)},
        scopes_{&scopes},
        taken_{scopes},
        category_{category},
        unit_{&unit} {}
  /// ContractError that names category and unit if the scope has ended.
  void require_open() const {
    if (*scopes_ != taken_) [[unlikely]] { refuse(); }
  }

 private:
  [[noreturn]] void refuse() const;

  std::shared_ptr<const void> life_;
  const std::uint64_t* scopes_;
  std::uint64_t taken_;
  Category category_;
  const std::string* unit_;
};

/// A parameter or gradient, readable from the opening of its scope to the end. Not owned. Converts
/// to the pointer a kernel takes; ContractError if the element type is another, or if the scope or
/// the model has ended: another unit may live there by then.
class ConstTensor {
 public:
  ConstTensor(ConstView view, const Shape& shape, const Lifetime& lifetime) noexcept
      : view_{view}, shape_{&shape}, lifetime_{lifetime} {}
  [[nodiscard]] const void* data() const {
    lifetime_.require_open();
    return view_.data;
  }
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype; }
  [[nodiscard]] const Shape& shape() const noexcept { return *shape_; }
  operator const float*() const;
  /// Whatever the element type.
  operator ConstValues() const { return {data(), view_.dtype}; }

 private:
  ConstView view_;
  const Shape* shape_;
  Lifetime lifetime_;
};

/// As ConstTensor, for writing.
class Tensor {
 public:
  Tensor(View view, const Shape& shape, const Lifetime& lifetime) noexcept
      : view_{view}, shape_{&shape}, lifetime_{lifetime} {}
  [[nodiscard]] void* data() const {
    lifetime_.require_open();
    return view_.data;
  }
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype; }
  [[nodiscard]] const Shape& shape() const noexcept { return *shape_; }
  operator float*() const;
  operator Values() const { return {data(), view_.dtype}; }
  operator ConstValues() const { return {data(), view_.dtype}; }

 private:
  View view_;
  const Shape* shape_;
  Lifetime lifetime_;
};

}  // namespace tessera

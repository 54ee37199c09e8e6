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

/// The time during which a tensor may be used: until the scope that it was taken from ends.
/// ConstTensor and Tensor check it at every access; users need not name it.
class Lifetime {
 public:
  /// Begins a lifetime. `scopes` counts the scopes of the unit that have ended. Errors name
  /// `category` and `unit`. `life` keeps both references valid.
  Lifetime(std::shared_ptr<const void> life, const std::uint64_t& scopes, Category category,
           const std::string& unit) noexcept
      : life_{std::move(life)},
        scopes_{&scopes},
        taken_{scopes},
        category_{category},
        unit_{&unit} {}
  /// Throws ContractError that names category and unit if the scope has ended.
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

/// A parameter, or this rank's part of it, that can be read until its scope ends. It owns nothing.
/// It converts to the pointer that a kernel takes: device memory that is ready on the scope's
/// stream.
///
/// Errors: ContractError if the scope or the model has ended, since the memory may then belong to
///         another unit, and for a conversion to an element type other than `dtype`.
class ConstTensor {
 public:
  /// Makes a tensor; scopes call it. `shape` outlives the tensor or is kept by `lifetime`.
  ConstTensor(ConstView view, const Shape& shape, const Lifetime& lifetime) noexcept
      : view_{view}, shape_{&shape}, lifetime_{lifetime} {}
  /// Returns the address of the first element.
  [[nodiscard]] const void* data() const {
    lifetime_.require_open();
    return view_.data;
  }
  /// Returns the type of the elements.
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype; }
  /// Returns the shape of the parameter, or of this rank's part of it (ParameterSpec::cut).
  [[nodiscard]] const Shape& shape() const noexcept { return *shape_; }
  /// Converts to the address of an fp32 tensor.
  operator const float*() const;
  /// Converts to an address with its dtype, for any element type.
  operator ConstValues() const { return {data(), view_.dtype}; }

 private:
  ConstView view_;
  const Shape* shape_;
  Lifetime lifetime_;
};

/// A gradient, or this rank's part of it, that can be read and written until its scope ends. It
/// owns nothing. It converts to the pointer that a kernel takes: device memory that is ready on the
/// scope's stream.
///
/// Errors: ContractError if the scope or the model has ended, since the memory may then belong to
///         another unit, and for a conversion to an element type other than `dtype`.
class Tensor {
 public:
  /// Makes a tensor; scopes call it. `shape` outlives the tensor or is kept by `lifetime`.
  Tensor(View view, const Shape& shape, const Lifetime& lifetime) noexcept
      : view_{view}, shape_{&shape}, lifetime_{lifetime} {}
  /// Returns the address of the first element.
  [[nodiscard]] void* data() const {
    lifetime_.require_open();
    return view_.data;
  }
  /// Returns the type of the elements.
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype; }
  /// Returns the shape of the parameter, or of this rank's part of it (ParameterSpec::cut).
  [[nodiscard]] const Shape& shape() const noexcept { return *shape_; }
  /// Converts to the address of an fp32 tensor.
  operator float*() const;
  /// Converts to an address with its dtype, for any element type.
  operator Values() const { return {data(), view_.dtype}; }
  /// Converts to a read-only address with its dtype, for any element type.
  operator ConstValues() const { return {data(), view_.dtype}; }

 private:
  View view_;
  const Shape* shape_;
  Lifetime lifetime_;
};

}  // namespace tessera

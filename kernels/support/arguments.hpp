#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/table.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Checks the arguments of a public function. Every check throws ContractError with the function,
/// the argument and its numbers.
class Arguments {
 public:
  struct Size {
    const char* name;
    std::int64_t value;
  };
  struct Array {
    const char* name;
    ConstValues values;
    std::int64_t elems;
  };

  explicit Arguments(const char* function) noexcept : function_{function} {}

  /// Returns the kernels that compute on `stream`, and checks that it has some.
  [[nodiscard]] const Table& table(Stream stream) const;

  /// No size is negative, and the product of all is an array that memory can hold.
  void sizes(std::initializer_list<Size> sizes) const;
  /// `size` is what the function called `least_name` returns, `least`, or more.
  void at_least(const Size& size, const char* least_name, std::int64_t least) const;
  /// Each of `rows` rows has an element: the mean or maximum of nothing is undefined.
  void elements_in(std::int64_t rows, const Size& columns) const;
  /// `part` is 0, which stands for `whole`, or divides it.
  void divisor(const Size& part, const Size& whole) const;
  /// `part` is 1 or more and divides `whole`.
  void group(const Size& part, const Size& whole) const;
  /// `size` is not negative and a multiple of `unit`, which is called `unit_name`.
  void multiple(const Size& size, const char* unit_name, std::int64_t unit) const;
  /// `factor` is finite and not negative.
  void factor(const char* name, float factor) const;
  /// Rows of `columns` elements, or what else `of` names, lie `row_elems` apart and do not overlap.
  void row(const char* name, std::int64_t row_elems, std::int64_t columns,
           const char* of = "row") const;
  /// `p` lies in [0, 1).
  void probability(const char* name, float p) const;
  /// `data` is not null if `elems` is not zero.
  void given(const char* name, const void* data, std::int64_t elems) const;
  /// Each array is not null and has a dtype that kernels compute with.
  void arrays(std::initializer_list<Array> arrays) const;
  /// Like `arrays`; all have the same dtype.
  void of_one_dtype(std::initializer_list<Array> arrays) const;
  /// Like `of_one_dtype`, for those arrays that are not null.
  void given_of_one_dtype(std::initializer_list<Array> arrays) const;

 private:
  void dtype(const Array& array) const;
  void same_dtype(const Array& first, const Array& other) const;

  const char* function_;
};

}  // namespace tessera::kernels

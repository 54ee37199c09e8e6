#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/table.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Checks what a caller has given to one of the public functions. Every check throws ContractError
/// that names the function, the argument and its numbers.
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

  /// The kernels that compute on `stream`; it must have some.
  [[nodiscard]] const Table& table(Stream stream) const;

  /// None is negative, and together they are the sizes of something that memory can hold.
  void sizes(std::initializer_list<Size> sizes) const;
  /// `size` is what the function called `least_name` returns, `least`, or more.
  void at_least(const Size& size, const char* least_name, std::int64_t least) const;
  /// Each of `rows` rows has an element: a mean or a largest value of nothing is undefined.
  void elements_in(std::int64_t rows, const Size& columns) const;
  /// Rows of `columns` elements lie `row_elems` apart, and do not overlap.
  void row(const char* name, std::int64_t row_elems, std::int64_t columns) const;
  /// `p` lies in [0, 1).
  void probability(const char* name, float p) const;
  /// Memory of `elems` elements is there.
  void given(const char* name, const void* data, std::int64_t elems) const;
  /// Each is there and of a dtype that kernels compute with.
  void arrays(std::initializer_list<Array> arrays) const;
  /// Like `arrays`; all have one dtype.
  void of_one_dtype(std::initializer_list<Array> arrays) const;
  /// Like `of_one_dtype`, for the arrays that are not null.
  void given_of_one_dtype(std::initializer_list<Array> arrays) const;

 private:
  void dtype(const Array& array) const;
  void same_dtype(const Array& first, const Array& other) const;

  const char* function_;
};

}  // namespace tessera::kernels

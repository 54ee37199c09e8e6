#include "kernels/support/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

// No product of the sizes below overflows.
constexpr std::int64_t kMostElems = std::int64_t{1} << 62;

}  // namespace

const Table& Arguments::table(Stream stream) const {
  if (stream && stream.state()->kernels().table != nullptr) {
    return *stream.state()->kernels().table;
  }
  throw ContractError{fmt::format(
      "{}: this stream has no kernels; enqueue on World::compute_stream(), a scope's stream(), or "
      "the stream that a CustomOptimizer's update is given",
      function_)};
}

void Arguments::sizes(std::initializer_list<Size> sizes) const {
  for (const Size& size : sizes) {
    if (size.value >= 0) { continue; }
    throw ContractError{
        fmt::format("{}: {} is {}; give 0 or more", function_, size.name, size.value)};
  }
  std::int64_t product = 1;
  for (const Size& size : sizes) {
    if (size.value == 0 || size.value <= kMostElems / product) {
      product *= std::max<std::int64_t>(size.value, 1);
      continue;
    }
    throw ContractError{
        fmt::format("{}: with {} of {} there are more than 2^62 elements; give the "
                    "sizes of what is in memory",
                    function_, size.name, size.value)};
  }
}

void Arguments::at_least(const Size& size, const char* least_name, std::int64_t least) const {
  if (size.value >= least) { return; }
  throw ContractError{
      fmt::format("{}: {} is {}; give {} or more", function_, size.name, size.value, least_name)};
}

void Arguments::elements_in(std::int64_t rows, const Size& columns) const {
  if (rows == 0 || columns.value > 0) { return; }
  throw ContractError{fmt::format("{}: {} is 0, but there are {} rows; give 1 or more", function_,
                                  columns.name, rows)};
}

void Arguments::divisor(const Size& part, const Size& whole) const {
  if (part.value == 0 || (part.value <= whole.value && whole.value % part.value == 0)) { return; }
  throw ContractError{fmt::format("{}: {} is {}; give a divisor of {}, which is {}, or 0",
                                  function_, part.name, part.value, whole.name, whole.value)};
}

void Arguments::group(const Size& part, const Size& whole) const {
  at_least(part, "1", 1);
  if (whole.value % part.value == 0) { return; }
  throw ContractError{fmt::format("{}: {} is {}; give a divisor of {}, which is {}", function_,
                                  part.name, part.value, whole.name, whole.value)};
}

void Arguments::multiple(const Size& size, const char* unit_name, std::int64_t unit) const {
  if (size.value >= 0 && size.value % unit == 0) { return; }
  throw ContractError{fmt::format("{}: {} is {}; give a multiple of {}, which is {}", function_,
                                  size.name, size.value, unit_name, unit)};
}

void Arguments::factor(const char* name, float factor) const {
  if (std::isfinite(factor) && factor >= 0.0F) { return; }
  throw ContractError{
      fmt::format("{}: {} is {}; give a finite number of 0 or more", function_, name, factor)};
}

void Arguments::row(const char* name, std::int64_t row_elems, std::int64_t columns,
                    const char* of) const {
  if (row_elems >= columns) { return; }
  throw ContractError{fmt::format("{}: {} is {}, shorter than a {} of {} elements", function_, name,
                                  row_elems, of, columns)};
}

void Arguments::probability(const char* name, float p) const {
  if (p >= 0.0F && p < 1.0F) { return; }
  throw ContractError{
      fmt::format("{}: {} is {}; give a probability from 0 to below 1", function_, name, p)};
}

void Arguments::given(const char* name, const void* data, std::int64_t elems) const {
  if (data != nullptr || elems == 0) { return; }
  throw ContractError{
      fmt::format("{}: {} is null, but {} elements of it are needed", function_, name, elems)};
}

void Arguments::dtype(const Array& array) const {
  if (size_of(array.values.dtype) == 0) {
    throw ContractError{fmt::format("{}: the dtype of {} is {}, which is no enumerator", function_,
                                    array.name, static_cast<int>(array.values.dtype))};
  }
  if (array.values.dtype != DType::fp64) { return; }
  throw ContractError{
      fmt::format("{}: {} is fp64; give fp32, bf16 or fp16", function_, array.name)};
}

void Arguments::same_dtype(const Array& first, const Array& other) const {
  if (first.values.dtype == other.values.dtype) { return; }
  throw ContractError{fmt::format("{}: {} is {}, but {} is {}; give both in one dtype", function_,
                                  first.name, to_string(first.values.dtype), other.name,
                                  to_string(other.values.dtype))};
}

void Arguments::arrays(std::initializer_list<Array> arrays) const {
  for (const Array& array : arrays) {
    dtype(array);
    given(array.name, array.values.data, array.elems);
  }
}

void Arguments::of_one_dtype(std::initializer_list<Array> arrays) const {
  this->arrays(arrays);
  for (const Array& array : arrays) { same_dtype(*arrays.begin(), array); }
}

void Arguments::given_of_one_dtype(std::initializer_list<Array> arrays) const {
  const Array* first = nullptr;
  for (const Array& array : arrays) {
    if (!array.values) { continue; }
    dtype(array);
    if (first == nullptr) { first = &array; }
    same_dtype(*first, array);
  }
}

}  // namespace tessera::kernels

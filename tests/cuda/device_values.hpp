#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "cuda/values.hpp"
#include "kernels/support/typed.hpp"

// Values of any dtype, and how far kernels may be from a reference.
namespace tessera::test {

using kernels::DeviceValues;
using kernels::filled;
using kernels::Floats;
using kernels::kInfinity;
using kernels::kNan;
using kernels::random_floats;
using kernels::same_bits;
using kernels::with_gaps;

inline constexpr DType kValueDTypes[] = {DType::fp32, DType::bf16, DType::fp16};
inline constexpr double kRoundoff = 0x1p-24;  // of fp32, to nearest

/// Floats stored in some dtype, rounded to nearest.
class HostValues {
 public:
  HostValues(DType dtype, const Floats& values)
      : dtype_{dtype}, elems_{std::ssize(values)}, bytes_(values.size() * size_of(dtype)) {
    for (std::int64_t i = 0; i < elems_; ++i) {
      kernels::set_element(view(), i, values[static_cast<std::size_t>(i)]);
    }
  }
  HostValues(DType dtype, std::vector<std::byte> bytes)
      : dtype_{dtype},
        elems_{static_cast<std::int64_t>(bytes.size() / size_of(dtype))},
        bytes_{std::move(bytes)} {}

  [[nodiscard]] Values view() { return {bytes_.data(), dtype_}; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] Floats floats() {
    Floats all;
    for (std::int64_t i = 0; i < elems_; ++i) { all.push_back(kernels::element(view(), i)); }
    return all;
  }

 private:
  DType dtype_;
  std::int64_t elems_;
  std::vector<std::byte> bytes_;
};

/// What is left of floats in a dtype.
inline Floats rounded(DType dtype, const Floats& values) {
  return HostValues(dtype, values).floats();
}

/// How far rounding a value of size `value` to a dtype may move it.
inline double rounding(DType dtype, double value) {
  const double unit = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::fp16 ? 0x1p-11 : 0x1p-24;
  const double least = dtype == DType::fp16 ? 0x1p-25 : 0x1p-150;
  return unit * std::abs(value) + least;
}

/// Each element of `actual`, stored in `dtype`, is that of `expected` but for `bound(i)`, with
/// which it was computed, and the rounding of the result.
template <class Bound>
void expect_within(const Floats& actual, const Floats& expected, DType dtype, Bound bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double most = bound(i);
    const double size = std::abs(static_cast<double>(expected[i])) + most;
    ASSERT_NEAR(actual[i], expected[i], most + rounding(dtype, size) + kRoundoff * size)
        << "element " << i << " of " << actual.size();
  }
}

/// A stream whose workspace is smaller than a rank's, so that kernels go over it in pieces.
class SmallWorkspace {
 public:
  SmallWorkspace(CudaBench& bench, std::size_t bytes)
      : state_{*bench.stream().state()}, before_{state_.workspace()} {
    state_.lend({before_.data, bytes});
  }
  ~SmallWorkspace() { state_.lend(before_); }
  SmallWorkspace(const SmallWorkspace&) = delete;
  SmallWorkspace& operator=(const SmallWorkspace&) = delete;

 private:
  StreamState& state_;
  StreamWorkspace before_;
};

}  // namespace tessera::test

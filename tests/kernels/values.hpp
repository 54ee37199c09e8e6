#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/support.hpp"
#include "kernels/support/typed.hpp"
#include "support/rounding.hpp"

// Values of any dtype on the host and on a device, and error bounds of kernels.
namespace tessera::kernels {

using test::backend_name;
using test::backends;
using test::BackendTest;
using test::cpu_alone;
using test::CpuTest;
using test::cuda_alone;
using test::DeviceArray;
using test::DeviceBench;

using Bytes = std::vector<std::byte>;

inline constexpr DType kValueDTypes[] = {DType::fp32, DType::bf16, DType::fp16};
using test::roundings;
using test::unit_roundoff;
inline constexpr double kRoundoff = unit_roundoff(DType::fp32);

/// Floats stored in some dtype, rounded to nearest.
class HostValues {
 public:
  HostValues(DType dtype, const Floats& values)
      : dtype_{dtype}, elems_{std::ssize(values)}, bytes_(values.size() * size_of(dtype)) {
    for (std::int64_t i = 0; i < elems_; ++i) {
      set_element(view(), i, values[static_cast<std::size_t>(i)]);
    }
  }
  HostValues(DType dtype, Bytes bytes)
      : dtype_{dtype},
        elems_{static_cast<std::int64_t>(bytes.size() / size_of(dtype))},
        bytes_{std::move(bytes)} {}

  [[nodiscard]] Values view() { return {bytes_.data(), dtype_}; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Bytes& bytes() const noexcept { return bytes_; }
  [[nodiscard]] Floats floats() {
    Floats all;
    for (std::int64_t i = 0; i < elems_; ++i) { all.push_back(element(view(), i)); }
    return all;
  }

 private:
  DType dtype_;
  std::int64_t elems_;
  Bytes bytes_;
};

/// Floats as they are laid out in memory in a dtype.
inline Bytes encoded(const Floats& floats, DType dtype) {
  return HostValues(dtype, floats).bytes();
}
inline Floats decoded(Bytes bytes, DType dtype) {
  return HostValues(dtype, std::move(bytes)).floats();
}

/// Floats rounded to a dtype.
inline Floats rounded(DType dtype, const Floats& values) {
  return dtype == DType::fp32 ? values : HostValues(dtype, values).floats();
}

/// Whether two arrays of a dtype have equal bits; all NaNs count as equal.
inline bool same_values(const Bytes& a, const Bytes& b, DType dtype) {
  if (a == b) { return true; }
  const Floats x = decoded(a, dtype);
  const Floats y = decoded(b, dtype);
  bool same = x.size() == y.size();
  for (std::size_t i = 0; same && i < x.size(); ++i) {
    same = (std::isnan(x[i]) && std::isnan(y[i])) ||
           std::bit_cast<std::uint32_t>(x[i]) == std::bit_cast<std::uint32_t>(y[i]);
  }
  return same;
}

/// Values of a dtype on the device, between guards, `offset` elements after an aligned address.
class DeviceValues {
 public:
  DeviceValues(DeviceBench& bench, const Floats& floats, DType dtype, std::int64_t offset = 0)
      : dtype_{dtype},
        bytes_{bench, encoded(floats, dtype), offset * static_cast<std::int64_t>(size_of(dtype))} {}
  /// Poisoned.
  DeviceValues(DeviceBench& bench, std::int64_t elems, DType dtype, std::int64_t offset = 0)
      : dtype_{dtype},
        bytes_{bench, elems * static_cast<std::int64_t>(size_of(dtype)),
               offset * static_cast<std::int64_t>(size_of(dtype))} {}

  [[nodiscard]] Values values() { return {bytes_.data(), dtype_}; }
  operator Values() { return values(); }
  operator ConstValues() { return values(); }
  [[nodiscard]] View view() {
    return {bytes_.data(), bytes_.elems() / static_cast<std::int64_t>(size_of(dtype_)), dtype_};
  }
  [[nodiscard]] Bytes read() { return bytes_.read(); }
  [[nodiscard]] Floats floats() { return decoded(read(), dtype_); }

 private:
  DType dtype_;
  DeviceArray<std::byte> bytes_;
};

/// How far rounding a value of size `value` to a dtype may move it.
inline double rounding(DType dtype, double value) {
  const double least = dtype == DType::fp16 ? 0x1p-25 : 0x1p-150;
  return unit_roundoff(dtype) * std::abs(value) + least;
}

/// Each element of `actual`, stored in `dtype`, equals that of `expected` up to `bound(i)`, the
/// error of the computation, and the rounding of the result.
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

/// A stream with a workspace smaller than a rank's, so that kernels process their input in pieces.
class SmallWorkspace {
 public:
  SmallWorkspace(DeviceBench& bench, std::size_t bytes)
      : state_{*bench.stream().state()}, before_{state_.workspace()} {
    state_.lend({before_.data, std::min(before_.bytes, bytes)});
  }
  ~SmallWorkspace() { state_.lend(before_); }
  SmallWorkspace(const SmallWorkspace&) = delete;
  SmallWorkspace& operator=(const SmallWorkspace&) = delete;

 private:
  device::StreamState& state_;
  device::StreamWorkspace before_;
};

}  // namespace tessera::kernels

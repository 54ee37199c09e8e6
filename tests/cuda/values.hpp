#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "cuda/support.hpp"
#include "kernels/support.hpp"
#include "kernels/support/convert.hpp"

// Arrays of any dtype on the device, and the same on the host.
namespace tessera::kernels {

using test::CudaBench;
using test::CudaFixture;
using test::CudaTest;
using test::DeviceArray;

using Bytes = std::vector<std::byte>;

inline constexpr DType kElementTypes[] = {DType::fp32, DType::bf16, DType::fp16};

/// Floats as they lie in memory in a dtype.
inline Bytes encoded(std::span<const float> floats, DType dtype) {
  Bytes bytes(floats.size() * size_of(dtype));
  if (!floats.empty()) { narrow({bytes.data(), dtype}, floats.data(), std::ssize(floats)); }
  return bytes;
}
inline Floats decoded(const Bytes& bytes, DType dtype) {
  Floats floats(bytes.size() / size_of(dtype));
  if (!floats.empty()) { widen(floats.data(), {bytes.data(), dtype}, std::ssize(floats)); }
  return floats;
}

/// Whether two arrays of a dtype are equal to the bit, but for NaNs, of which one is like another.
inline bool same_values(const Bytes& a, const Bytes& b, DType dtype) {
  const Floats x = decoded(a, dtype);
  const Floats y = decoded(b, dtype);
  bool same = x.size() == y.size();
  for (std::size_t i = 0; same && i < x.size(); ++i) {
    same = (std::isnan(x[i]) && std::isnan(y[i])) ||
           std::bit_cast<std::uint32_t>(x[i]) == std::bit_cast<std::uint32_t>(y[i]);
  }
  return same;
}

/// Values of a dtype on the device, between guards, `offset` elements behind a multiple of 256
/// bytes.
class DeviceValues {
 public:
  DeviceValues(CudaBench& bench, std::span<const float> floats, DType dtype,
               std::int64_t offset = 0)
      : dtype_{dtype},
        bytes_{bench, encoded(floats, dtype), offset * static_cast<std::int64_t>(size_of(dtype))} {}
  /// Poisoned.
  DeviceValues(CudaBench& bench, std::int64_t elems, DType dtype, std::int64_t offset = 0)
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

/// The CPU's kernels, run at once.
class CpuTwin {
 public:
  [[nodiscard]] Stream stream() const { return stream_.get(); }
  [[nodiscard]] const Table& table() const { return cpu_table(); }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device();
  OwnedStream stream_ = device_->make_compute_stream();
};

}  // namespace tessera::kernels

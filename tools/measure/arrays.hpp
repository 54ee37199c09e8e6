#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/values.hpp"
#include "tessera/device/device.hpp"

namespace tessera::bench {

/// Floats aligned to 128 bytes, written once so that their pages exist.
using Floats = std::shared_ptr<float>;
[[nodiscard]] Floats floats(std::int64_t elems, float value);
/// Values in [-1, 1) that allow no algorithm a shortcut; the same for the same `seed`.
[[nodiscard]] Floats noise(std::int64_t elems, std::uint32_t seed);

/// `noise`, rounded to `dtype`, aligned to 128 bytes.
class RoundedNoise {
 public:
  RoundedNoise(DType dtype, std::int64_t elems, std::uint32_t seed);
  [[nodiscard]] Values values() const { return {memory_.get(), dtype_}; }

 private:
  DType dtype_;
  Floats memory_;
};

/// The stream of a CPU rank: enqueued work runs on the calling thread at once.
class CallerStream {
 public:
  CallerStream() : device_{make_cpu_device()}, stream_{device_->make_compute_stream()} {}
  [[nodiscard]] Stream get() const noexcept { return stream_.get(); }

 private:
  std::unique_ptr<Device> device_;
  OwnedStream stream_;
};

}  // namespace tessera::bench

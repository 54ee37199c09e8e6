#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tessera/base/view.hpp"
#include "tessera/comm/world.hpp"

namespace tessera::engine {

/// Moves fp32 values between host memory and device memory of any dtype of parameters and
/// gradients. Each call returns when it is done.
class HostCopy {
 public:
  explicit HostCopy(World& world) noexcept : world_{world} {}

  /// As many `values` as `to` has elements, rounded to nearest where it is narrower.
  void write(View to, std::span<const float> values);
  /// Exactly.
  void read(std::span<float> values, ConstView from);

 private:
  World& world_;
  std::vector<std::byte> narrow_;
};

}  // namespace tessera::engine

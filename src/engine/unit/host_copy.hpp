#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/support/master_parts.hpp"
#include "tessera/base/view.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Moves fp32 values between host memory and device memory of any parameter or gradient dtype. Each
/// call is done on return.
class HostCopy {
 public:
  explicit HostCopy(World& world) noexcept : world_{world} {}

  /// Writes part `part` of `values` to `to`, for each of its elements.
  void write(View to, kernels::MasterPart part, std::span<const float> values);
  /// Reads the values exactly.
  void read(std::span<float> values, ConstView from);
  /// Reads masters from their two halves; `on_host`: the remainder is in the host pool.
  void read_joined(std::span<float> values, ConstView parameter, ConstView remainder, bool on_host);

 private:
  World& world_;
  std::vector<std::byte> narrow_;
  std::vector<bfloat16> upper_;
  std::vector<std::uint16_t> lower_;
};

}  // namespace tessera::engine

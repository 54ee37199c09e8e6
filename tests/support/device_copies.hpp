#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/world/world.hpp"

namespace tessera::test {

/// Device copies of the host memory that a batch uses. Each contiguous stretch is one buffer, so
/// that overlapping views still overlap.
class DeviceCopies {
 public:
  /// Copies everything in. `rank` is this rank in the batch's communicator.
  DeviceCopies(World& world, Batch batch, int rank);
  DeviceCopies(World& world, Batch batch) : DeviceCopies{world, std::move(batch), world.rank()} {}
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// The same batch on the copies.
  [[nodiscard]] Batch batch() const;
  /// Copies everything back.
  void bring_back();

 private:
  struct Stretch {
    std::byte* host;
    std::size_t bytes;
    Buffer device;
  };

  [[nodiscard]] void* moved(const void* host) const;

  World& world_;
  Batch original_;
  std::vector<Stretch> stretches_;
};

}  // namespace tessera::test

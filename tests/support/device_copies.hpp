#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/world/world.hpp"

namespace tessera::test {

/// Device memory in place of the host memory that a batch is of: every stretch of it is one
/// buffer, so that what lies inside of something else still does.
class DeviceCopies {
 public:
  /// Copies all of it in. `rank` is that of the communicator that the batch is for.
  DeviceCopies(World& world, Batch batch, int rank);
  DeviceCopies(World& world, Batch batch) : DeviceCopies{world, std::move(batch), world.rank()} {}
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// The same batch of the copies.
  [[nodiscard]] Batch batch() const;
  /// Copies all of it back.
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

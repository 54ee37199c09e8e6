#pragma once

#include <exception>
#include <memory>

#include "tessera/world/world.hpp"

namespace tessera::world {

/// What remains of a World after its end.
struct WorldLife {
  bool ended = false;
  /// The first error found in a destructor, where it cannot be thrown. The end of the rank's body
  /// throws it.
  std::exception_ptr mistake;
};

/// What an object that refers to a World keeps of it, so that it may outlive the World. The
/// object's memory and events stay valid, and it can query whether the World has ended.
///
/// Threads: those of the object; it is destroyed by the rank's thread or after that has ended.
class WorldGuest {
 public:
  explicit WorldGuest(World& world);

  [[nodiscard]] bool world_ended() const noexcept { return life_->ended; }
  /// Throws ContractError if it has: `what` may no longer be used.
  void require_world(const char* what) const;
  [[nodiscard]] WorldLife& life() const noexcept { return *life_; }

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<WorldLife> life_;
};

}  // namespace tessera::world

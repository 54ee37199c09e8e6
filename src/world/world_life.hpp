#pragma once

#include <exception>
#include <memory>

#include "tessera/world/world.hpp"

namespace tessera {

/// What is left of a World when it has ended.
struct WorldLife {
  bool ended = false;
  /// The first error that was found where nothing can be thrown, in a destructor. The end of the
  /// rank's body throws it.
  std::exception_ptr mistake;
};

/// What an object that refers to a World keeps of it, so that it may outlive the World. The
/// object's memory and events stay valid, and it can ask whether the World has ended.
///
/// Threads: those of the object; it is destroyed by the rank's thread or after that has ended.
class WorldGuest {
 public:
  explicit WorldGuest(World& world);

  [[nodiscard]] bool world_ended() const noexcept { return life_->ended; }
  /// ContractError if it has: `what` may not be used any more.
  void require_world(const char* what) const;
  [[nodiscard]] WorldLife& life() const noexcept { return *life_; }

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<WorldLife> life_;
};

}  // namespace tessera

#pragma once

#include "tessera/world/world.hpp"

namespace tessera::torch {

/// While one lives, what libtorch allocates on this thread (and for the World's CUDA device on any)
/// counts as activations in the World's memory, and against its budget. Memory that outlives it
/// stays counted until it is freed. Guards nest: the newest counts.
class CountedAllocations {
 public:
  explicit CountedAllocations(World& world);
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

 private:
  MemoryTracker* before_;
};

}  // namespace tessera::torch

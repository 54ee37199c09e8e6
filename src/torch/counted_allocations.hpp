#pragma once

#include <memory>
#include <optional>

#include "tessera/world/world.hpp"
#include "torch/cuda_stream.hpp"

namespace tessera::torch {

/// While one lives, memory that libtorch allocates for this rank counts as activations of the World
/// and against its budget: an allocation beyond it throws OutOfMemory out of the operator. It
/// counts the bytes that a tensor requests, until the last tensor that shares them is destroyed: on
/// any thread, and even after the guard and the World have ended.
///
///   CPU:   allocations of this thread, including autograd's backward. Those of the helpers of
///          at::parallel_for do not count: next to nothing.
///   CUDA:  allocations of any thread while the rank's compute stream is libtorch's current one;
///          the guard makes it so on this thread, and autograd's threads follow. Freed memory that
///          libtorch caches is not counted: a device's ledger shows it as unattributed.
///
/// Guards nest: the newest one counts. The first one wraps libtorch's allocator permanently: a
/// program with its own allocator must set it before.
///
/// Errors:  ConfigError for a CUDA World if this build has no CUDA part of libtorch.
/// Threads: the rank's own.
class CountedAllocations {
 public:
  explicit CountedAllocations(World& world);
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

  /// Returns the tracker that counts this thread's CPU allocations, or null.
  [[nodiscard]] static std::shared_ptr<MemoryTracker> tracker_of_thread();

 private:
  std::shared_ptr<MemoryTracker> tracker_;
  CountedAllocations* before_ = nullptr;  // per thread: a list from the newest on
  CountedAllocations* after_ = nullptr;
  std::optional<CudaStream> stream_;
};

}  // namespace tessera::torch

#pragma once

#include <memory>
#include <optional>

#include "tessera/world/world.hpp"
#include "torch/cuda_stream.hpp"

namespace tessera::torch {

/// While one lives, what libtorch allocates for this rank counts as activations in the World's
/// memory and against its budget: an allocation beyond it throws OutOfMemory out of the operator
/// that needed it. Counted are the bytes that a tensor asks for, until the last that shares them is
/// gone: on any thread, and even after the guard and the World have ended.
///
///   CPU:   what this thread allocates, autograd's backward included. What the helpers of
///          at::parallel_for allocate does not count: next to nothing.
///   CUDA:  what any thread allocates while the rank's compute stream is libtorch's current one;
///          the guard makes it that on this thread, and autograd's threads follow. What libtorch
///          keeps of freed memory for later is not counted: a device's ledger shows it as
///          unattributed.
///
/// Guards nest: the newest that lives counts. The first one wraps libtorch's allocator, for good:
/// a program that has an allocator of its own sets it before.
///
/// Errors:  ConfigError for a CUDA World if this build has no CUDA part of libtorch.
/// Threads: the rank's own.
class CountedAllocations {
 public:
  explicit CountedAllocations(World& world);
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

  /// Returns the tracker that counts what this thread allocates on the CPU, or null.
  [[nodiscard]] static std::shared_ptr<MemoryTracker> tracker_of_thread();

 private:
  std::shared_ptr<MemoryTracker> tracker_;
  CountedAllocations* before_ = nullptr;  // of this thread: a list from the newest on
  CountedAllocations* after_ = nullptr;
  std::optional<CudaStream> stream_;
};

}  // namespace tessera::torch

#pragma once

#include <cstddef>
#include <memory>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/world.hpp"

namespace tessera::torch {

/// While one lives, libtorch's current stream on this thread is the compute stream of a World on
/// CUDA, and libtorch's allocations on that stream count in the World's memory. Several may live
/// for one World, and end in any order. `cuda_stream.cpp` implements it where libtorch has CUDA,
/// `no_cuda_stream.cpp` throws.
class CudaStream {
 public:
  /// Throws ConfigError if this build has no CUDA part of libtorch.
  static void require();

  explicit CudaStream(World& world);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

 private:
  void* stream_;
};

}  // namespace tessera::torch

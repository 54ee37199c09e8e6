#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "device/cpu/timeline.hpp"
#include "device/cuda/cuda_flags.hpp"

namespace tessera::cuda {

/// The progress of a stream of host work, in pinned memory that the device can see: device streams
/// wait there for a ticket, without any thread waiting.
///
/// Errors:  the constructor throws ConfigError if the device cannot wait this way.
/// Threads: any.
class CudaHostWord final : public device::TimelineListener {
 public:
  /// Tries a wait on `idle`, a stream of the calling thread's device with no pending work.
  explicit CudaHostWord(cudaStream_t idle);

  void reached(std::uint64_t ticket) noexcept override;
  /// `stream`, on the calling thread's device, waits until `ticket` is reached. The word outlives
  /// that. At most 2^31 tickets lie between it and the tickets reached so far.
  void hold(cudaStream_t stream, std::uint64_t ticket) const;

 private:
  [[nodiscard]] int enqueue_wait(cudaStream_t stream, std::uint64_t ticket) const;

  void* wait_;  // the driver's function
  PinnedFlags word_{1};
};

/// A point in a stream of host work.
struct HostPoint {
  device::Mark mark;
  std::shared_ptr<const CudaHostWord> word;
};

}  // namespace tessera::cuda

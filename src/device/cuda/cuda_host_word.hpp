#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "device/cpu/timeline.hpp"
#include "device/cuda/cuda_flags.hpp"

namespace tessera::cuda {

/// How far a stream of host work has come, in pinned memory where the device sees it: streams of
/// the device wait there for a ticket, and no thread waits for them.
///
/// Errors:  ConfigError of the constructor if the device cannot wait so.
/// Threads: any.
class CudaHostWord final : public TimelineListener {
 public:
  /// Tries it on `idle`, a stream of the calling thread's device that waits for nothing.
  explicit CudaHostWord(cudaStream_t idle);

  void reached(std::uint64_t ticket) noexcept override;
  /// `stream`, one of the calling thread's device, goes on when `ticket` is reached. The word
  /// outlives that. At most 2^31 tickets lie between it and what has been reached by then.
  void hold(cudaStream_t stream, std::uint64_t ticket) const;

 private:
  [[nodiscard]] int enqueue_wait(cudaStream_t stream, std::uint64_t ticket) const;

  void* wait_;  // the driver's function
  PinnedFlags word_{1};
};

/// A point of a stream of host work.
struct HostPoint {
  Mark mark;
  std::shared_ptr<const CudaHostWord> word;
};

}  // namespace tessera::cuda

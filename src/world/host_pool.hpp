#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tessera/world/world.hpp"
#include "world/world_access.hpp"

namespace tessera::world {

/// Kinds of copies between a rank's two pools. Each has its own stream, so that none waits for
/// another: updated parameters may take long to arrive.
enum class CopyKind : std::uint8_t {
  activations,
  states,     ///< gradients to the host and updated parameters back, or updated state to the host
  states_in,  ///< state to the device that updates it: the other direction of the same link
  snapshots,  ///< the training state to the host, for a checkpoint
};

/// A computation on the host. Its argument is a stream of a CPU device, on which the CPU's kernels
/// run at once, with the rank's threads.
using HostWork = std::function<void(Stream cpu)>;

/// Work on a rank's second pool, enqueued by the engine: copies between that pool and the device,
/// and computation on the host. It runs on separate streams, beside computation and collectives;
/// the first call that needs a stream makes it. `World` keeps the memory itself.
///
/// Threads: one at a time.
class HostPool {
 public:
  /// The pool of `world`, which outlives the work.
  explicit HostPool(World& world) noexcept : state_{WorldAccess::state(world)} {}

  /// The stream of these copies; on the CPU, a thread of its own.
  [[nodiscard]] Stream copy_stream(CopyKind kind) const;
  /// Enqueues a copy of `bytes` on that stream, from the device to the host pool. Records it under
  /// `name`, which outlives the copy.
  void copy_out(void* to_host, const void* from, std::size_t bytes, const std::string& name,
                CopyKind kind) const;
  /// The same from the host pool to the device.
  void copy_in(void* to, const void* from_host, std::size_t bytes, const std::string& name,
               CopyKind kind) const;
  /// The stream of copies within the host pool for a snapshot. Like `compute_stream`, a thread of
  /// its own on every device, so that no device stream is held up.
  [[nodiscard]] Stream host_copy_stream() const;
  /// Enqueues a copy of `bytes` there. It is recorded like `copy_out`'s.
  void copy_on_host(void* to, const void* from, std::size_t bytes, const std::string& name) const;
  /// The stream on which the host computes: a thread of its own on every device, whose events order
  /// it with the device's streams (Device::make_host_stream).
  [[nodiscard]] Stream compute_stream() const;
  /// The stream on which the device updates state that arrives from the host pool piece by piece.
  [[nodiscard]] Stream update_stream() const;
  /// Enqueues an update of `name` on it: the work that `launch` enqueues. `name` outlives it.
  /// Records it as a span.
  void update(const std::function<void(Stream)>& launch, const std::string& name) const;
  /// Enqueues `work` on `compute_stream`. `work` must not throw or wait. Records it as a span
  /// `what` of `name`; both outlive it.
  void compute(HostWork work, const char* what, const std::string& name) const;

 private:
  WorldAccess::State& state_;
};

}  // namespace tessera::world

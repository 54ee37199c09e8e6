#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tessera/world/world.hpp"
#include "world/world_access.hpp"

namespace tessera {

/// Kinds of copies between a rank's two pools. Each has a stream of its own, so that neither waits
/// for the other: updated parameters may be long in coming.
enum class CopyLane : std::uint8_t {
  activations,
  states,     ///< gradients to the host and updated parameters back, or updated state to the host
  states_in,  ///< state to the device that updates it: the other direction of the same link
  snapshots,  ///< the training state to the host, for a checkpoint
};

/// A computation on the host. Its argument is a stream of a CPU device, on which the CPU's kernels
/// run at once, with the rank's threads.
using HostWork = std::function<void(Stream cpu)>;

/// The work on a rank's second pool, which the engine gives it: copies between that pool and the
/// device, and what the host computes there. It runs on streams of its own, beside computation and
/// collectives, each made by the first call that needs it. `World` keeps the memory itself.
///
/// Threads: one at a time.
class HostPool {
 public:
  /// That of `world`, which outlives the work.
  explicit HostPool(World& world) noexcept : state_{WorldAccess::state(world)} {}

  /// Where the copies of a lane run: on the CPU a thread of its own.
  [[nodiscard]] Stream copy_stream(CopyLane lane);
  /// Enqueues a copy of `bytes` on that stream, from the device to the host pool. It is recorded
  /// as that of `name`, which outlives the copy.
  void copy_out(void* to_host, const void* from, std::size_t bytes, const std::string& name,
                CopyLane lane);
  /// The same from the host pool to the device.
  void copy_in(void* to, const void* from_host, std::size_t bytes, const std::string& name,
               CopyLane lane);
  /// Where memory is copied within the host pool for a snapshot: as `compute_stream`, a thread of
  /// its own on every device, so that a device's stream is not held up.
  [[nodiscard]] Stream host_copy_stream();
  /// Enqueues a copy of `bytes` there. It is recorded as `copy_out`'s.
  void copy_on_host(void* to, const void* from, std::size_t bytes, const std::string& name);
  /// Where the host computes: a thread of its own on every device, whose events order it with the
  /// device's streams (Device::make_host_stream).
  [[nodiscard]] Stream compute_stream();
  /// Where the device updates what comes from the host pool piece by piece.
  [[nodiscard]] Stream update_stream();
  /// Enqueues on it what `launch` enqueues there: an update of `name`, which outlives it. It is
  /// recorded as a span.
  void update(const std::function<void(Stream)>& launch, const std::string& name);
  /// Enqueues `work` on `compute_stream`. It does not throw, and waits for nothing. It is recorded
  /// as a span `what` of `name`; both outlive it.
  void compute(HostWork work, const char* what, const std::string& name);

 private:
  WorldAccess::State& state_;
};

}  // namespace tessera

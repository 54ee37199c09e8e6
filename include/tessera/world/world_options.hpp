#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tessera/comm/delay_injection.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/slot_ring.hpp"

namespace tessera {

/// Where a CPU rank's compute stream runs what is enqueued on it.
enum class ComputeStream : std::uint8_t {
  caller,  ///< at once, on the thread that enqueues: plain loops of the caller's are in order
  worker,  ///< later, on a thread of its own, as on a GPU: for trainers whose every computation is
           ///< enqueued. Test instrument: shows events that the caller's thread would hide
};

/// How a job's ranks are set up.
struct WorldOptions {
  /// A collective that has not finished after this long ends the job with CommError.
  std::chrono::milliseconds deadline{300'000};
  /// Whether to keep records of allocations, collectives and phases (World::recorder).
  bool trace = false;
  /// With `trace`: the number of ended steps whose records are kept, beside those of the step under
  /// way (0: all), so that a long run's records do not grow. See trace::Recorder::keep_last.
  int trace_steps = 0;
  /// Whether to keep a log of what is enqueued (World::work_log): of kernels with their seconds on
  /// a CPU, of everything in a simulation.
  bool log_work = false;
  /// Whether slots are overwritten when they are released. Test instrument; changes no result.
  SlotPoison poison = SlotPoison::off;
  /// Random delays around collectives and copies. Test instrument; changes no result.
  std::optional<DelayInjection> delays = {};
  /// Where a CPU rank's compute stream runs.
  ComputeStream compute_stream = ComputeStream::caller;
  /// Where the ranks' tensors live and their kernels run: cpu or cuda.
  DeviceKind device = DeviceKind::cpu;
  /// The CUDA device of a rank, as CUDA counts those that the process may see. Unless it is given,
  /// ranks that are threads share the devices out in turn (all of them one, where there is one),
  /// and a process takes the one of its local rank.
  std::optional<int> cuda_ordinal = {};
  /// Compute threads per rank, including the caller (1 to 256). They speed up the library's kernels
  /// (plain loops in World::compute stay on one), change no bit of any result, and sleep between
  /// kernels.
  int threads = 1;
  /// Threads per rank with which a rank on a CUDA device computes on the host, where its optimizer
  /// is offloaded (1 to 256). They change no bit of any result. 0: its part of the cores that it
  /// may use, each of which is shared out evenly among the ranks of the machine that may use it. On
  /// a CPU leave it at 0: there `threads` compute.
  int host_threads = 0;
  /// Bytes of device memory that a rank may hold: the library's and what the caller has registered
  /// or taken with World::allocate. An allocation beyond it throws OutOfMemory that says what is
  /// held. Unless it is given, only the device limits it.
  std::optional<std::size_t> budget_bytes = {};
  /// Whether NCCL is made deterministic too, by forcing the ring algorithm. Without it NCCL may add
  /// in another order in every run; the rest of the library gives the same bits in every run of a
  /// job on the same machines, whatever is set here. ConfigError if the environment (NCCL_ALGO,
  /// NCCL_TUNER_PLUGIN) asks for an algorithm without a fixed order.
  bool deterministic = false;
};

}  // namespace tessera

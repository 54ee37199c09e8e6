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
  /// Keep records of allocations, collectives and phases (World::recorder).
  bool trace = false;
  /// With `trace`: of so many steps that have ended, and of the one under way (0: of all), so that
  /// a long run's records do not grow. See trace::Recorder::keep_last.
  int trace_steps = 0;
  /// Keep a log of what is enqueued (World::work_log): of kernels with their seconds on a CPU, of
  /// everything in a simulation.
  bool log_work = false;
  /// Overwrite slots when they are released. Test instrument; changes no result.
  SlotPoison poison = SlotPoison::off;
  std::optional<DelayInjection> delays = {};
  ComputeStream compute_stream = ComputeStream::caller;
  /// Where the ranks' tensors live and their kernels run: cpu or cuda.
  DeviceKind device = DeviceKind::cpu;
  /// Which CUDA device a rank uses, as CUDA counts those that the process may see. Unless given,
  /// ranks that are threads share the devices out in turn (all of them one, where there is one),
  /// and a process takes the one of its local rank.
  std::optional<int> cuda_ordinal = {};
  /// That a rank computes with, its own among them; from 1 to 256. They speed up the library's
  /// kernels (plain loops in World::compute stay on one), change no bit of any result, and sleep
  /// between kernels.
  int threads = 1;
  /// That a rank on a CUDA device computes with on the host (World::compute_on_host), its own among
  /// them; up to 256. They change no bit of any result. 0: its part of the cores that it may use,
  /// each of which is shared out evenly among the ranks of the machine that may use it. On a CPU
  /// leave it at 0: `threads` are those.
  int host_threads = 0;
  /// What a rank may hold at most, the library's memory and what the caller has registered or taken
  /// with World::allocate: an allocation beyond it throws OutOfMemory that says what is held.
  std::optional<std::size_t> budget_bytes = {};
  /// Insist on the same bits in every run of this job on the same machines. All of the library
  /// gives them without being asked, with the deterministic variants of other libraries' kernels,
  /// but for NCCL, which may add in another order in every run: it is then held to its ring.
  /// ConfigError if the environment (NCCL_ALGO, NCCL_TUNER_PLUGIN) asks it for what has no fixed
  /// order.
  bool deterministic = false;
};

}  // namespace tessera

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/comm/delay_injection.hpp"
#include "tessera/comm/nccl_options.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/slot_ring.hpp"

namespace tessera {

/// The thread on which a CPU rank's compute stream runs its work.
enum class ComputeStream : std::uint8_t {
  caller,  ///< Work runs at once on the thread that enqueues it, in order with the caller's loops.
  worker,  ///< Work runs later on a thread of the stream's own, as on a GPU. A trainer must enqueue
           ///< all of its computation. Tests use it to find missing events.
};

/// Instruments with which tests of the library and of trainers find missing waits. A job that is
/// not a test leaves them at their defaults.
struct TestingOptions {
  /// How a slot is overwritten when it is released, so that late readers and writers are found.
  SlotPoison poison = SlotPoison::off;
  /// Random delays around collectives and copies, so that races are found. If not given, there are
  /// none.
  std::optional<DelayInjection> delays = {};
  /// The thread on which a CPU rank's compute stream runs its work. On CUDA it must keep the
  /// default, since the device has streams of its own.
  ComputeStream compute_stream = ComputeStream::caller;
};

/// Settings of a GPU that seldom need another value. All need `device` cuda.
struct WorldTuning {
  /// The priority, relative to the compute stream, of the streams that gathers and reductions run
  /// on. With `high`, the thread blocks of a collective are placed before those of kernels that
  /// have not begun.
  StreamPriority channel_priority = StreamPriority::usual;
  /// The number of multiprocessors that matrix products leave to collectives beside them
  /// (cuBLASLt's SM_COUNT_TARGET), below those that the GPU has; the same on all ranks. cuBLASLt
  /// may choose other algorithms then, whose sums have another order.
  int spared_multiprocessors = 0;
  /// The most workspace that cuDNN's 16-bit attention takes for itself, the same on all ranks. It
  /// computes as many heads at a time as fit, at least one if that needs at most 2 GiB. A sequence
  /// whose length is no multiple of 4 and whose heads do not fit at once is left to the library's
  /// own kernel.
  std::size_t attention_workspace_bytes = std::size_t{128} << 20U;
};

/// How the ranks of a job are set up. The defaults run on the CPU with one thread per rank. No
/// option changes a bit of a result, except `device`, `products`, `nondeterministic_attention`,
/// `tuning`, and `deterministic` and `nccl` with NCCL. A value out of range or without effect is
/// refused with ConfigError.
struct WorldOptions {
  /// The longest time, above 0, that a collective may take. One that takes longer ends the job with
  /// CommError.
  std::chrono::milliseconds deadline{300'000};
  /// Whether the rank records allocations, collectives and phases (World::recorder).
  bool trace = false;
  /// The number of finished steps whose records are kept, beside those of the current step, so that
  /// the records of a long run do not grow; 0 keeps all. It needs `trace`. See
  /// trace::Recorder::keep_last.
  int trace_steps = 0;
  /// Whether the rank logs what it enqueues (World::work_log): kernels with their seconds on a CPU,
  /// everything in a simulation.
  bool log_work = false;
  /// The kind of device on which the ranks keep tensors and compute: cpu or cuda.
  DeviceKind device = DeviceKind::cpu;
  /// The CUDA device of a rank, by its number among the devices visible to the process. If it is
  /// not given, ranks that are threads take the devices in turn, and a process takes the device of
  /// its local rank. It needs `device` cuda.
  std::optional<int> cuda_ordinal = {};
  /// Compute threads per rank on the CPU, including the caller (1 to 256). They speed up the
  /// library's kernels and sleep between them; loops in World::compute stay on one thread. On a
  /// CUDA device it must be 1.
  int threads = 1;
  /// Host compute threads per rank on a CUDA device, for an offloaded optimizer (0 to 256). 0: the
  /// rank's equal part of the cores that it and the other ranks of the machine may use. On a CPU it
  /// must be 0: `threads` counts there.
  int host_threads = 0;
  /// The most bytes that a rank may hold: the library's memory, and memory that the caller has
  /// registered or taken with World::allocate. An allocation beyond it throws OutOfMemory that
  /// lists the memory held. If not given, there is no limit.
  std::optional<std::size_t> budget_bytes = {};
  /// Makes NCCL deterministic too, by forcing the ring algorithm: every run of the job on the same
  /// machines then has the same bits. Everything else is deterministic anyway. ConfigError if the
  /// environment (NCCL_ALGO, NCCL_TUNER_PLUGIN) asks NCCL for an algorithm without a fixed order.
  bool deterministic = false;
  /// The path of a file in which tessera_cuda_bench --choose has recorded cuBLASLt's fastest
  /// algorithms for products of some sizes. ConfigError if the file is for another kind of device,
  /// another version of cuBLASLt or other `tuning.spared_multiprocessors`. All ranks must use the
  /// same choices, which is checked when a model is materialized. Empty: cuBLASLt's heuristic
  /// chooses, as it does for all other products.
  std::string products = {};
  /// Settings of NCCL, the same on all ranks.
  NcclOptions nccl = {};
  /// Lets cuDNN add the gradients of 16-bit attention in any order, which is faster. Runs and
  /// strategies then differ in their last bits. All other kernels keep their order. It needs
  /// `device` cuda, and cannot be combined with `deterministic`.
  bool nondeterministic_attention = false;
  /// Settings of a GPU that seldom need another value.
  WorldTuning tuning = {};
  /// Instruments for tests.
  TestingOptions testing = {};
};

/// Throws ConfigError if a value is out of range or has no effect. The message quotes the names of
/// options in backticks. A run checks its options itself; a program calls this to check them first.
void validate(const WorldOptions& options);

}  // namespace tessera

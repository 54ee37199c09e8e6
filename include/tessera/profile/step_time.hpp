#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/profile/machine_profile.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera {

/// Ranks of a job that enqueue the same work.
struct RankWork {
  const trace::WorkLog* log = nullptr;  ///< the log of one of them, not owned
  int count = 1;                        ///< how many they are
  /// The rank of the job whose log it is. It takes part in the batches of the groups that it is a
  /// member of, with the other ranks here that are.
  int rank = 0;
};

/// What a rank's time goes into, in seconds. Each moment counts once, under the first share whose
/// condition holds.
struct TimeShares {
  double computing = 0;  ///< a kernel runs that its FLOPs bound
  double memory = 0;     ///< a kernel runs that its bytes bound
  double bandwidth = 0;  ///< a collective (or a copy beside computation) moves data
  double latency = 0;    ///< a collective has begun and moves no data yet
  double waiting = 0;    ///< the rank waits for other ranks, or for the host to enqueue

  /// The sum of all shares.
  [[nodiscard]] double total() const noexcept {
    return computing + memory + bandwidth + latency + waiting;
  }
  /// The time of communication that is not hidden behind kernels.
  [[nodiscard]] double exposed() const noexcept { return bandwidth + latency; }
};

/// The name of the largest share: "compute", "memory", "bandwidth", "latency" or "waiting".
[[nodiscard]] std::string_view bound_of(const TimeShares& shares) noexcept;

/// What a rank's time goes into during one phase.
struct PhaseShares {
  std::string phase;  ///< "forward", ...
  TimeShares shares;
};

/// Something that ran on a stream.
struct WorkSpan {
  std::string stream;
  std::string what;  ///< the kernel's name or the batch's label
  double begin = 0;  ///< in seconds since the simulation began
  double end = 0;
};

/// The last step of one rank of a simulation.
struct RankTime {
  double flops = 0;   ///< of its kernels
  TimeShares shares;  ///< they sum to the time from the end of its step before
};

/// The last step of a simulation.
struct StepTime {
  double seconds = 0;               ///< from the end of the step before to its own
  double flops = 0;                 ///< of the first rank's kernels in that time
  TimeShares shares;                ///< of the first rank; they sum to `seconds`
  std::vector<PhaseShares> phases;  ///< `shares` by phase, in the order in which they come
  std::vector<WorkSpan> spans;      ///< of the first rank, of all steps, from the beginning
  std::vector<RankTime> ranks;      ///< by entry of the argument
};

/// Simulates the ranks that made these logs on the machine of `profile`, and returns the time of
/// their last step. Every entry of every log happens once, in order on its stream; kernels take the
/// time of kernel_seconds, collectives that of collective_seconds. The result depends on the
/// arguments alone.
///
///   - A wait holds its stream until the mark is reached. A batch begins when all ranks here that
///     are members of its group have reached it (they hold the same batches of the group). Its
///     operations share one latency, the longest, and move one after another.
///   - The host enqueues one entry after another, enqueue_seconds each; nothing starts before.
///     Where cores are shared (MachineProfile::cores), computation runs on the host's own thread.
///   - Collectives of one rank that move data over the same level at the same time share it.
///   - Shared cores: with more threads at work (computing or moving data, of all ranks) than cores,
///     each gets an equal part; with fewer, a kernel takes between `alone` and `shared`.
///   - Otherwise a kernel beside a collective that moves data runs at speed_beside_collectives.
///
/// The steps before the last one bring the schedule into its steady state; a log must hold two
/// steps at least.
///
/// Errors: ContractError if `ranks` is empty, or if the logs end in something that waits for ever
///         or hold fewer than two steps. ConfigError as kernel_seconds and collective_seconds.
[[nodiscard]] StepTime step_time(std::span<const RankWork> ranks, const MachineProfile& profile);

}  // namespace tessera

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/profile/machine_profile.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera {

/// A group of ranks that enqueue the same work.
struct RankWork {
  const trace::WorkLog* log = nullptr;  ///< the log of one of the ranks, not owned
  int count = 1;                        ///< the number of the ranks
  /// The rank of the job that made the log. It takes part in the batches of its groups, with the
  /// other simulated members.
  int rank = 0;
};

/// The time of a rank by what it does, in seconds. Each moment counts once, under the first share
/// whose condition holds.
struct TimeShares {
  double computing = 0;  ///< a kernel bound by its FLOPs runs
  double memory = 0;     ///< a kernel bound by its bytes runs
  double bandwidth = 0;  ///< a collective (or a copy beside computation) moves data
  double latency = 0;    ///< a collective has begun and moves no data yet
  double waiting = 0;    ///< the rank waits for other ranks, or for the host to enqueue

  /// Returns the sum of all shares.
  [[nodiscard]] double total() const noexcept {
    return computing + memory + bandwidth + latency + waiting;
  }
  /// Returns the time of communication that is not hidden behind kernels.
  [[nodiscard]] double exposed() const noexcept { return bandwidth + latency; }
};

/// Returns the name of the largest share: "compute", "memory", "bandwidth", "latency" or "waiting".
[[nodiscard]] std::string_view bound_of(const TimeShares& shares) noexcept;

/// The time of a rank during one phase.
struct PhaseShares {
  std::string phase;  ///< the phase: "forward", ...
  TimeShares shares;  ///< the time by what the rank does
};

/// A kernel or batch that ran on a stream of the simulation.
struct WorkSpan {
  std::string stream;  ///< the name of the stream
  std::string what;    ///< the kernel's name or the batch's label
  double begin = 0;    ///< seconds from the start of the simulation
  double end = 0;      ///< seconds from the start of the simulation
};

/// The last step of one simulated rank.
struct RankTime {
  double flops = 0;   ///< floating-point operations of its kernels
  TimeShares shares;  ///< its time since the end of the previous step
};

/// The last step of a simulation.
struct StepTime {
  double seconds = 0;               ///< time from the end of the previous step to the end of this
  double flops = 0;                 ///< operations of the first rank's kernels in that time
  TimeShares shares;                ///< of the first rank; they sum to `seconds`
  std::vector<PhaseShares> phases;  ///< `shares` by phase, in the order of the phases
  std::vector<WorkSpan> spans;      ///< the first rank's spans, in all steps
  std::vector<RankTime> ranks;      ///< by entry of the argument `ranks`
};

/// Simulates the ranks that made these logs on the machine of `profile`, and returns the time of
/// their last step. Every entry of every log happens once, in order on its stream; kernels take the
/// time of kernel_seconds, collectives that of collective_seconds. The result depends on the
/// arguments alone.
///
///   - A wait blocks its stream until the mark is reached. A batch begins when all simulated
///     members of its group have reached it; their logs have the same batches of the group. The
///     operations of a batch share one latency, the longest, and move data one after another.
///   - The host enqueues one entry after another, in enqueue_seconds each; an entry cannot start
///     before. If cores are shared (MachineProfile::cores), computation runs on the host's thread.
///   - Collectives of one rank that move data over the same level at the same time share it.
///   - If cores are shared and more threads of all ranks compute or move data than there are cores,
///     each thread gets an equal part; otherwise a kernel takes between `alone` and `shared`.
///   - If cores are not shared, a kernel beside a collective that moves data runs at
///     speed_beside_collectives.
///
/// The steps before the last one bring the schedule into its steady state: a log must have at least
/// two steps.
///
/// Errors: ContractError if `ranks` is empty, or if the logs wait forever or have fewer than two
///         steps. ConfigError as kernel_seconds and collective_seconds.
[[nodiscard]] StepTime step_time(std::span<const RankWork> ranks, const MachineProfile& profile);

}  // namespace tessera

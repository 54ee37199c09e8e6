#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/profile/machine_profile.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera {

/// Ranks of a job that enqueue the same, by the log of one of them.
struct RankWork {
  const trace::WorkLog* log = nullptr;
  int count = 1;
};

/// What a rank's time goes into. Each moment counts once, under the first that holds.
struct TimeShares {
  double computing = 0;  ///< a kernel that its FLOPs bound runs
  double memory = 0;     ///< one that its bytes bound
  double bandwidth = 0;  ///< none runs, and a collective (or copy beside it) moves data
  double latency = 0;    ///< ... and collectives have begun, and move nothing yet
  double waiting = 0;    ///< ... and other ranks, or the host that enqueues, are waited for

  [[nodiscard]] double total() const noexcept {
    return computing + memory + bandwidth + latency + waiting;
  }
  /// Not hidden behind kernels.
  [[nodiscard]] double exposed() const noexcept { return bandwidth + latency; }
};

/// "compute", "memory", "bandwidth", "latency" or "waiting": the largest.
[[nodiscard]] std::string_view bound_of(const TimeShares& shares) noexcept;

struct PhaseShares {
  std::string phase;
  TimeShares shares;
};

/// Something that ran on a stream.
struct WorkSpan {
  std::string stream;
  std::string what;
  double begin = 0;
  double end = 0;
};

/// The last step of a simulation.
struct StepTime {
  double seconds = 0;               ///< from the end of the step before to its own
  double flops = 0;                 ///< of the first rank's kernels in that time
  TimeShares shares;                ///< of the first rank; they sum to `seconds`
  std::vector<PhaseShares> phases;  ///< the same by phase, in the order in which they come
  std::vector<WorkSpan> spans;      ///< of the first rank, of all steps, from the beginning
};

/// The time of a step of the ranks that made these logs, on that machine: every entry of every log
/// happens once, in order on its stream, kernels, collectives and waits taking their time by
/// kernel_seconds and collective_seconds. Pure: the same for the same arguments.
///
///   - A wait holds its stream until the mark has been come to. A batch begins when all logs have
///     come to it (they hold the same batches in each group); its operations share one latency, the
///     longest, and move one after another.
///   - The host enqueues one entry after another, enqueue_seconds each; nothing starts before.
///     Where cores are shared (MachineProfile::cores), computation runs on the host's own thread.
///   - Collectives of one rank that move data over the same level at the same time share it.
///   - Shared cores: with more threads at work (computing or moving data, of all ranks) than cores,
///     each gets an equal part; with fewer, a kernel takes between `alone` and `shared`.
///   - Otherwise a kernel beside a collective that moves data runs at speed_beside_collectives.
///
/// Steps before the last one are there to bring the schedule into its steady state: two at least.
///
/// Errors: ContractError if the logs end in something that waits for ever, or hold fewer than two
///         steps. ConfigError as kernel_seconds and collective_seconds.
[[nodiscard]] StepTime step_time(std::span<const RankWork> ranks, const MachineProfile& profile);

}  // namespace tessera

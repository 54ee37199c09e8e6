#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/memory/category.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera {

/// What a rank had in use from a moment to the next point, and what it was doing then.
struct TimelinePoint {
  std::int64_t at_ns = 0;  ///< since the step began
  std::string phase;       ///< "forward", "backward", "update"
  std::string unit;        ///< the unit of that phase
  CategoryBytes in_use;

  friend bool operator==(const TimelinePoint&, const TimelinePoint&) = default;
};

/// Work on one of the rank's streams.
struct TimelineSpan {
  std::int64_t begin_ns = 0;  ///< since the step began
  std::int64_t end_ns = 0;
  std::string stream;     ///< "compute", "gather", "reduce", "offload" or "host"
  std::string what;       ///< "forward", "all_gather", ...
  std::string unit;       ///< the unit it was done for
  std::size_t bytes = 0;  ///< sent by this rank, or copied; 0 for compute

  friend bool operator==(const TimelineSpan&, const TimelineSpan&) = default;
};

/// One step of one rank: memory in use as a step function, and what ran meanwhile.
struct StepTimeline {
  std::int64_t step = 0;  ///< from 1, as in the log
  std::int64_t duration_ns = 0;
  std::size_t peak_bytes = 0;  ///< the most that was in use within the step
  std::vector<TimelinePoint> points;
  std::vector<TimelineSpan> spans;
  std::size_t points_recorded = 0;  ///< more than there are points if some were left out
  std::size_t spans_recorded = 0;

  friend bool operator==(const StepTimeline&, const StepTimeline&) = default;
};

/// The `step`-th step (from 1) of the rank that made `recorded`, from its first issue to that of
/// the next step, or to its end if it is the last. Spans are cut where the step begins and ends.
/// Times are the device's: what the host did ahead of it stands where the device came to it.
///
/// Errors:  ContractError if `recorded` has nothing of that step, or releases what it does not
///          allocate (they must be all since the World was made).
[[nodiscard]] StepTimeline step_timeline(const std::vector<trace::Record>& recorded,
                                         std::int64_t step);

/// Points and spans that a report may hold, shared out among its timelines: with as many the page
/// stays under 1 MB.
inline constexpr std::size_t kReportPoints = 5000;

/// `timeline` with at most `most` (4 or more) points and as many spans: of points that are close in
/// time, the first and the highest stay, so the peak does; of spans the longest.
[[nodiscard]] StepTimeline thinned(StepTimeline timeline, std::size_t most);

/// `timeline` as an element of "timelines" in a report's document: times in microseconds,
/// categories that are never in use left out.
[[nodiscard]] std::string timeline_json(const StepTimeline& timeline, std::string_view strategy,
                                        int rank);

}  // namespace tessera

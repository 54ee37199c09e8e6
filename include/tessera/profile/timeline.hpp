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
  std::string phase;       ///< "forward", "backward", "update", ...
  std::string unit;        ///< the unit of that phase
  CategoryBytes in_use;    ///< from this moment to the next point

  friend bool operator==(const TimelinePoint&, const TimelinePoint&) = default;
};

/// Work on one of the rank's streams.
struct TimelineSpan {
  std::int64_t begin_ns = 0;  ///< since the step began
  std::int64_t end_ns = 0;    ///< since the step began
  std::string stream;         ///< "compute", "gather", "reduce", "offload", "update" or "host"
  std::string what;           ///< "forward", "all_gather", ...
  std::string unit;           ///< the unit it was done for
  std::size_t bytes = 0;      ///< sent by this rank, or copied; 0 for compute

  friend bool operator==(const TimelineSpan&, const TimelineSpan&) = default;
};

/// One step of one rank: memory in use as a step function, and what ran meanwhile.
struct StepTimeline {
  std::int64_t step = 0;              ///< counted from 1
  std::int64_t duration_ns = 0;       ///< from the beginning of the step to its end
  std::size_t peak_bytes = 0;         ///< the most that was in use within the step
  std::vector<TimelinePoint> points;  ///< by time, the first at 0
  std::vector<TimelineSpan> spans;    ///< by their beginning
  std::size_t points_recorded = 0;    ///< points before some were left out by `thinned`
  std::size_t spans_recorded = 0;     ///< spans before some were left out by `thinned`

  friend bool operator==(const StepTimeline&, const StepTimeline&) = default;
};

/// Makes the timeline of the `step`-th step (from 1) of the rank that made `recorded`: from the
/// step's first record to that of the next step, or to its own end if it is the last. Spans are cut
/// where the step begins and ends. Times are the device's: what the host did ahead of it stands
/// where the device came to it.
///
/// Errors:  ContractError if `recorded` has nothing of that step, or releases what it does not
///          allocate (it must hold all records of memory since the World was made).
[[nodiscard]] StepTimeline step_timeline(const std::vector<trace::Record>& recorded,
                                         std::int64_t step);

/// The points, and the spans, that a report may hold in all its timelines together. With as many,
/// its page stays under 1 MB.
inline constexpr std::size_t kReportPoints = 5000;

/// Returns `timeline` with at most `most` (4 or more) points and as many spans. Of points that are
/// close in time, the first and the highest stay, and so does the peak; of spans the longest stay.
/// ContractError if `most` is below 4.
[[nodiscard]] StepTimeline thinned(StepTimeline timeline, std::size_t most);

/// Writes `timeline` as an element of "timelines" in a report's document, with times in
/// microseconds and without categories that are never in use.
[[nodiscard]] std::string timeline_json(const StepTimeline& timeline, std::string_view strategy,
                                        int rank);

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/memory/category.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera {

/// The memory that a rank has in use from one moment to the next point, and its phase.
struct TimelinePoint {
  std::int64_t at_ns = 0;  ///< nanoseconds since the step began
  std::string phase;       ///< "forward", "backward", "update", ...
  std::string unit;        ///< the unit of that phase
  CategoryBytes in_use;    ///< bytes in use from this moment to the next point

  friend bool operator==(const TimelinePoint&, const TimelinePoint&) = default;
};

/// Work on one of the rank's streams.
struct TimelineSpan {
  std::int64_t begin_ns = 0;  ///< nanoseconds since the step began
  std::int64_t end_ns = 0;    ///< nanoseconds since the step began
  std::string stream;         ///< "compute", "gather", "reduce", "offload", "update" or "host"
  std::string what;           ///< "forward", "all_gather", ...
  std::string unit;           ///< the unit that the work is for
  std::size_t bytes = 0;      ///< bytes that this rank sent or copied; 0 for computation

  friend bool operator==(const TimelineSpan&, const TimelineSpan&) = default;
};

/// One step of one rank: the memory in use over time, and the work on its streams.
struct StepTimeline {
  std::int64_t step = 0;              ///< the number of the step, from 1
  std::int64_t duration_ns = 0;       ///< nanoseconds from the step's beginning to its end
  std::size_t peak_bytes = 0;         ///< the most bytes in use within the step
  std::vector<TimelinePoint> points;  ///< ordered by time, the first at 0
  std::vector<TimelineSpan> spans;    ///< ordered by their beginning
  std::size_t points_recorded = 0;    ///< number of points before `thinned` left some out
  std::size_t spans_recorded = 0;     ///< number of spans before `thinned` left some out

  friend bool operator==(const StepTimeline&, const StepTimeline&) = default;
};

/// Returns the timeline of step `step` (from 1) of the rank that made `recorded`. It lasts from the
/// step's first record to the first record of the next step, or to its own end if it is the last.
/// Spans are cut at the step's beginning and end. Times are the device's: memory that the host
/// changed ahead of the device changes when the device reaches that point.
///
/// Errors:  ContractError if `recorded` has no record of that step, or releases memory that it does
///          not allocate: it must have all records of memory since the World was made.
[[nodiscard]] StepTimeline step_timeline(const std::vector<trace::Record>& recorded,
                                         std::int64_t step);

/// The most points, and the most spans, in all timelines of a report together. They keep its page
/// under 1 MB.
inline constexpr std::size_t kReportPoints = 5000;

/// Returns `timeline` with at most `most` points and at most `most` spans. It keeps the peak, the
/// first and the highest of points that are close in time, and the longest spans. Throws
/// ContractError if `most` is below 4.
[[nodiscard]] StepTimeline thinned(StepTimeline timeline, std::size_t most);

/// Returns `timeline` as an element of "timelines" in a report's document, with times in
/// microseconds and without categories that are never in use.
[[nodiscard]] std::string timeline_json(const StepTimeline& timeline, std::string_view strategy,
                                        int rank);

}  // namespace tessera

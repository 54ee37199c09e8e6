#include "tessera/profile/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "profile/device_time.hpp"
#include "profile/records.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using profile::Progress;
using trace::Kind;
using trace::Record;

struct Window {
  std::int64_t begin;
  std::int64_t end;
};

// Transfers, and work of the host, do not know the step that they belong to.
bool is_beside_the_program(const Record& record) {
  return record.kind == Kind::collective || record.kind == Kind::copy || record.kind == Kind::host;
}

// Records of the setup before the first step count as part of it.
bool belongs_to_a_step(const Record& record) {
  return !is_beside_the_program(record) && record.phase != "setup";
}

// The end of the last step: of its scopes and its update, and of work that had begun beside them.
std::int64_t last_end(const std::vector<Record>& records, std::int64_t step) {
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const Record& record : records) {
    const bool own = record.kind == Kind::issue || record.kind == Kind::compute;
    if (own && record.step == step - 1) { end = std::max(end, record.end_ns); }
  }
  std::int64_t with_others = end;
  for (const Record& record : records) {
    if (is_beside_the_program(record) && record.begin_ns < end) {
      with_others = std::max(with_others, record.end_ns);
    }
  }
  return with_others;
}

Window window_of(const std::vector<Record>& records, std::int64_t step) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  std::int64_t begin = never;
  std::int64_t next = never;
  for (const Record& record : records) {
    if (!belongs_to_a_step(record)) { continue; }
    // A record counts the steps finished before it.
    if (record.step == step - 1) { begin = std::min(begin, record.begin_ns); }
    if (record.step >= step) { next = std::min(next, record.begin_ns); }
  }
  if (begin == never) { throw ContractError{fmt::format("there are no records of step {}", step)}; }
  return {begin, std::max(begin, next == never ? last_end(records, step) : next)};
}

std::vector<Record> instants_until(const std::vector<Record>& records, std::int64_t end) {
  std::vector<Record> instants;
  std::copy_if(records.begin(), records.end(), std::back_inserter(instants),
               [&](const Record& r) { return !profile::is_span(r) && r.begin_ns < end; });
  std::stable_sort(instants.begin(), instants.end(),
                   [](const Record& a, const Record& b) { return a.begin_ns < b.begin_ns; });
  return instants;
}

bool same_state(const TimelinePoint& a, const TimelinePoint& b) {
  return a.phase == b.phase && a.unit == b.unit && a.in_use == b.in_use;
}

std::vector<TimelinePoint> points_in(const std::vector<Record>& records, Window window) {
  std::vector<TimelinePoint> points;
  Progress progress;
  const auto point_at = [&](std::int64_t at_ns) {
    return TimelinePoint{at_ns, progress.phase(), progress.unit(), progress.in_use()};
  };
  const std::vector<Record> instants = instants_until(records, window.end);
  for (std::size_t i = 0; i < instants.size(); ++i) {
    const Record& record = instants[i];
    if (points.empty() && record.begin_ns > window.begin) { points.push_back(point_at(0)); }
    progress.apply(record);
    const bool half = i + 1 < instants.size() && profile::one_change(record, instants[i + 1]);
    if (record.begin_ns <= window.begin || half) { continue; }
    const TimelinePoint point = point_at(record.begin_ns - window.begin);
    if (!same_state(points.back(), point)) { points.push_back(point); }
  }
  if (points.empty()) { points.push_back(point_at(0)); }
  return points;
}

std::vector<TimelineSpan> spans_in(const std::vector<Record>& records, Window window) {
  std::vector<TimelineSpan> spans;
  for (const Record& record : records) {
    if (!profile::is_span(record)) { continue; }
    const std::int64_t begin = std::max(record.begin_ns, window.begin);
    const std::int64_t end = std::min(record.end_ns, window.end);
    if (begin >= end) { continue; }
    spans.push_back({begin - window.begin, end - window.begin, record.stream, record.what,
                     record.unit, record.bytes});
  }
  std::stable_sort(spans.begin(), spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return a.begin_ns < b.begin_ns;
  });
  return spans;
}

std::size_t peak_of(const std::vector<TimelinePoint>& points) {
  std::size_t peak = 0;
  for (const TimelinePoint& point : points) { peak = std::max(peak, point.in_use.total()); }
  return peak;
}

bool lower(const TimelinePoint& a, const TimelinePoint& b) {
  return a.in_use.total() < b.in_use.total();
}

// Two points of each interval of time: the first, and the highest.
std::vector<TimelinePoint> thinned(const std::vector<TimelinePoint>& points,
                                   std::int64_t duration_ns, std::size_t most) {
  std::vector<TimelinePoint> kept;
  const auto intervals = static_cast<std::int64_t>(most / 2);
  auto first = points.begin();
  for (std::int64_t i = 1; i <= intervals; ++i) {
    const auto last = i == intervals
                          ? points.end()
                          : std::find_if(first, points.end(), [&](const TimelinePoint& point) {
                              return point.at_ns >= duration_ns / intervals * i;
                            });
    if (first == last) { continue; }
    kept.push_back(*first);
    const auto highest = std::max_element(first, last, lower);
    if (highest != first) { kept.push_back(*highest); }
    first = last;
  }
  return kept;
}

void keep_longest(std::vector<TimelineSpan>& spans, std::size_t most) {
  const auto length = [](const TimelineSpan& span) { return span.end_ns - span.begin_ns; };
  std::stable_sort(spans.begin(), spans.end(), [&](const TimelineSpan& a, const TimelineSpan& b) {
    return length(a) > length(b);
  });
  spans.erase(spans.begin() + static_cast<std::ptrdiff_t>(most), spans.end());
  std::stable_sort(spans.begin(), spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return a.begin_ns < b.begin_ns;
  });
}

}  // namespace

StepTimeline step_timeline(const std::vector<Record>& recorded, std::int64_t step) {
  const std::vector<Record> records = profile::in_device_time(recorded);
  const Window window = window_of(records, step);
  StepTimeline timeline;
  timeline.step = step;
  timeline.duration_ns = window.end - window.begin;
  timeline.points = points_in(records, window);
  timeline.spans = spans_in(records, window);
  timeline.peak_bytes = peak_of(timeline.points);
  timeline.points_recorded = timeline.points.size();
  timeline.spans_recorded = timeline.spans.size();
  return timeline;
}

StepTimeline thinned(StepTimeline timeline, std::size_t most) {
  expects(most >= 4, "thinned: a timeline needs at least 4 points");
  if (timeline.points.size() > most) {
    timeline.points = thinned(timeline.points, timeline.duration_ns, most);
  }
  if (timeline.spans.size() > most) { keep_longest(timeline.spans, most); }
  return timeline;
}

}  // namespace tessera

#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/profile/timeline.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Tenths of a microsecond: short to write, and finer than a reader can see.
double microseconds(std::int64_t ns) {
  return std::round(static_cast<double>(ns) / 100) / 10;
}

std::vector<Category> used_categories(const StepTimeline& timeline) {
  std::vector<Category> used;
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    for (const TimelinePoint& point : timeline.points) {
      if (point.in_use[category] == 0) { continue; }
      used.push_back(category);
      break;
    }
  }
  return used;
}

Json json_of(const TimelinePoint& point, const std::vector<Category>& categories) {
  Json bytes = Json::array();
  for (const Category category : categories) { bytes.push_back(point.in_use[category]); }
  return Json::array({microseconds(point.at_ns), point.phase, point.unit, bytes});
}

Json json_of(const TimelineSpan& span) {
  Json json = Json::array(
      {microseconds(span.begin_ns), microseconds(span.end_ns), span.stream, span.what, span.unit});
  if (span.bytes > 0) { json.push_back(span.bytes); }
  return json;
}

}  // namespace

std::string timeline_json(const StepTimeline& timeline, std::string_view strategy, int rank) {
  const std::vector<Category> categories = used_categories(timeline);
  Json names = Json::array();
  for (const Category category : categories) { names.push_back(to_string(category)); }
  Json points = Json::array();
  for (const TimelinePoint& point : timeline.points) {
    points.push_back(json_of(point, categories));
  }
  Json spans = Json::array();
  for (const TimelineSpan& span : timeline.spans) { spans.push_back(json_of(span)); }
  const Json json = {{"strategy", strategy},
                     {"rank", rank},
                     {"step", timeline.step},
                     {"duration_us", microseconds(timeline.duration_ns)},
                     {"peak_bytes", timeline.peak_bytes},
                     {"categories", names},
                     {"points", points},
                     {"spans", spans},
                     {"points_recorded", timeline.points_recorded},
                     {"spans_recorded", timeline.spans_recorded}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera

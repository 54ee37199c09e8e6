#include "tools/train/report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "tessera/profile/html_report.hpp"
#include "tessera/profile/timeline.hpp"
#include "tools/common/json_text.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/say.hpp"
#include "tools/train/recorded_pipeline.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

Json timelines_of(const std::vector<RunResult>& results) {
  std::size_t count = 0;
  for (const RunResult& result : results) {
    count += std::min(result.recording.ranks.size(), std::size_t{kRanksShown});
  }
  Json timelines = Json::array();
  if (count == 0) { return timelines; }
  const std::size_t points = std::max<std::size_t>(4, kReportPoints / count);
  for (const RunResult& result : results) {
    const std::vector<RankTrace>& ranks = result.recording.ranks;
    for (std::size_t r = 0; r < std::min(ranks.size(), std::size_t{kRanksShown}); ++r) {
      const StepTimeline timeline = step_timeline(ranks[r].records, result.recording.step);
      timelines.push_back(Json::parse(
          timeline_json(thinned(timeline, points), to_string(result.strategy), ranks[r].rank)));
    }
  }
  return timelines;
}

}  // namespace

std::string report_page(std::string_view kind, const Json& document, const Settings& settings,
                        const std::vector<RunResult>& results) {
  Json whole = {{"kind", kind},
                {"command", settings.command_line},
                {"created", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                {"version", TESSERA_VERSION}};
  whole.update(document);
  whole["timelines"] = timelines_of(results);
  // The clocks of processes may differ.
  const bool one_clock = document.value("comm", "") == "local";
  for (const RunResult& result : results) {
    if (!one_clock) { break; }
    Json recorded = recorded_pipeline(settings, result.recording, result.strategy);
    if (!recorded.is_null()) { whole["pipeline"]["recorded"].push_back(std::move(recorded)); }
  }
  return html_report(json_text(whole));
}

void write_report(std::string_view kind, const Json& document, const Settings& settings,
                  const std::vector<RunResult>& results) {
  if (settings.report.empty()) { return; }
  const std::string page = report_page(kind, document, settings, results);
  write_output(settings.report, page);
  say(fmt::format("report in {}\n", settings.report));
}

void write_trace(const Settings& settings, const RunResult& result) {
  if (settings.trace.empty()) { return; }
  const std::string trace = perfetto_trace(result.recording.ranks);
  write_output(settings.trace, trace);
  say(fmt::format("trace of steps {} to {} in {}, for https://ui.perfetto.dev\n",
                  result.steps.front().report.step, result.recording.step, settings.trace));
}

}  // namespace tessera::tools

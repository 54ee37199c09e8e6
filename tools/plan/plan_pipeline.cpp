#include "tools/plan/plan_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/pipeline/timeline.hpp"
#include "tools/options/mesh.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

// With more actions the picture would be unreadable and the file too large.
constexpr std::size_t kMostActions = 4096;

std::size_t actions_of(const pipeline::Schedule& schedule) {
  std::size_t actions = 0;
  for (const auto& rank : schedule.ranks) { actions += rank.size(); }
  return actions;
}

}  // namespace

Json pipeline_json(const Settings& settings) {
  const pipeline::Schedule schedule = schedule_of(settings);
  const pipeline::Timeline timeline = pipeline::play(schedule);
  Json json = {{"schedule", to_string(settings.pipe_schedule)},   {"stages", schedule.stages()},
               {"micro_batches", schedule.micro_batches},         {"bubble", timeline.bubble()},
               {"in_flight", pipeline::most_in_flight(schedule)}, {"length", timeline.length}};
  if (actions_of(schedule) > kMostActions) { return json; }
  Json ranks = Json::array();
  for (const auto& spans : timeline.ranks) {
    Json rank = Json::array();
    for (const pipeline::Span& span : spans) {
      rank.push_back({span.begin, span.end, pipeline::to_string(span.action.work),
                      span.action.stage, span.action.micro_batch});
    }
    ranks.push_back(std::move(rank));
  }
  json["ranks"] = std::move(ranks);
  return json;
}

std::string pipeline_line(const Settings& settings) {
  if (ranks_along(settings, "pipe") == 1) { return {}; }
  const pipeline::Schedule schedule = schedule_of(settings);
  const std::vector<int> in_flight = pipeline::most_in_flight(schedule);
  return fmt::format(
      "({} stages, schedule {}: idle for {:.1f} % of a step if all stages take equally long; a "
      "rank keeps the\nactivations of {} micro-batches at most)\n",
      schedule.stages(), to_string(settings.pipe_schedule), 100 * pipeline::play(schedule).bubble(),
      std::ranges::max(in_flight));
}

}  // namespace tessera::tools

#include "tools/train/recorded_pipeline.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/pipeline/schedule.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;
using trace::Record;

/// The scopes of one action.
struct Pass {
  bool forward = false;
  bool reads = false;  ///< opens units without their gradients, like the first half of backward
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::set<std::string> units;
  std::optional<std::int64_t> layer;  ///< of the last block
};

/// 3 for "h.3"; empty for a unit that is not a block.
std::optional<std::int64_t> layer_of(const std::string& unit) {
  if (!unit.starts_with("h.")) { return {}; }
  return parse_whole(unit.substr(2), 0);
}

/// Whether `scope` starts a new pass: it has another direction than the scope before, its unit was
/// already opened, its layer is not a neighbour of the last, or it is at the end of the model where
/// a pass starts.
bool begins_pass(const Pass& before, const Record& scope) {
  const bool forward = scope.what == "forward";
  if (before.forward != forward || before.units.contains(scope.unit)) { return true; }
  if (scope.unit == (forward ? "tokens" : "head")) { return true; }
  const std::optional<std::int64_t> layer = layer_of(scope.unit);
  return layer && before.layer && *layer != *before.layer + (forward ? 1 : -1);
}

/// The scopes of a step, in order of time and divided into passes.
std::vector<Pass> passes_of(const RankTrace& trace, std::int64_t step) {
  std::vector<const Record*> scopes;
  for (const Record& record : trace.records) {
    const bool scope =
        record.what == "forward" || record.what == "backward" || record.what == "read";
    if (record.kind == trace::Kind::compute && record.step == step - 1 && scope) {
      scopes.push_back(&record);
    }
  }
  std::ranges::sort(scopes, {},
                    [](const Record* scope) { return std::pair{scope->begin_ns, scope->end_ns}; });
  std::vector<Pass> passes;
  for (const Record* const scope : scopes) {
    if (passes.empty() || begins_pass(passes.back(), *scope)) {
      passes.push_back({scope->what == "forward", false, scope->begin_ns, scope->end_ns, {}, {}});
    }
    Pass& pass = passes.back();
    pass.reads = pass.reads || scope->what == "read";
    pass.units.insert(scope->unit);
    pass.end = std::max(pass.end, scope->end_ns);
    if (const auto layer = layer_of(scope->unit)) { pass.layer = layer; }
  }
  return passes;
}

bool are_of(const std::vector<Pass>& passes, const std::vector<pipeline::Action>& actions) {
  return std::ranges::equal(passes, actions, [](const Pass& pass, const pipeline::Action& action) {
    return pass.forward == (action.work == pipeline::Work::forward) &&
           pass.reads == (action.work == pipeline::Work::backward_input);
  });
}

}  // namespace

Json recorded_pipeline(const Settings& settings, const Recording& recording, Strategy strategy) {
  const std::vector<int> ranks = pipe_ranks(settings);
  if (ranks.empty()) { return {}; }
  const pipeline::Schedule schedule = schedule_of(settings);
  std::vector<std::vector<Pass>> places;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    const auto trace = std::ranges::find(recording.ranks, ranks[place], &RankTrace::rank);
    if (trace == recording.ranks.end()) { return {}; }
    places.push_back(passes_of(*trace, recording.step));
    if (!are_of(places.back(), schedule.ranks[place])) { return {}; }
    for (const Pass& pass : places.back()) {
      first = std::min(first, pass.begin);
      last = std::max(last, pass.end);
    }
  }
  const auto microseconds = [&](std::int64_t ns) { return static_cast<double>(ns - first) / 1e3; };
  Json all = Json::array();
  for (std::size_t place = 0; place < places.size(); ++place) {
    Json spans = Json::array();
    for (std::size_t i = 0; i < places[place].size(); ++i) {
      const Pass& pass = places[place][i];
      const pipeline::Action& action = schedule.ranks[place][i];
      spans.push_back({microseconds(pass.begin), microseconds(pass.end),
                       pipeline::to_string(action.work), action.stage, action.micro_batch});
    }
    all.push_back(std::move(spans));
  }
  return {{"strategy", to_string(strategy)},
          {"step", recording.step},
          {"length", microseconds(last)},
          {"ranks", std::move(all)}};
}

}  // namespace tessera::tools

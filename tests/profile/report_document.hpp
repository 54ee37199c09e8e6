// Report documents as large as a user's.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/profile/timeline.hpp"

namespace tessera::test {

using Json = nlohmann::ordered_json;

inline Json rank_memory(int rank, std::size_t bytes) {
  const auto part = [&](std::size_t share) {
    return bytes * share + static_cast<std::size_t>(rank);
  };
  Json at_peak = {{"parameters", part(4)}, {"gradients", part(3)}, {"optimizer", part(8)},
                  {"gather", part(2)},     {"reduce", part(1)},    {"activations", part(6)},
                  {"workspace", part(1)},  {"communicator", 0},    {"context", 0},
                  {"unattributed", 0}};
  std::size_t peak = 0;
  for (const Json& value : at_peak) { peak += value.get<std::size_t>(); }
  return {{"rank", rank},
          {"planned_peak_bytes", rank == 0 ? Json(peak) : Json()},
          {"peak_bytes", peak},
          {"at_peak", at_peak},
          {"model_state_bytes",
           {{"parameters", part(4)}, {"gradients", part(3)}, {"optimizer", part(8)}}}};
}

/// A timeline with `points` changes and as many spans.
inline StepTimeline long_timeline(std::size_t points) {
  StepTimeline timeline;
  timeline.step = 3;
  timeline.duration_ns = static_cast<std::int64_t>(points) * 12'345;
  for (std::size_t i = 0; i < points; ++i) {
    const auto begin = static_cast<std::int64_t>(i) * 12'345;
    CategoryBytes in_use;
    in_use[Category::parameters] = 123'456'789;
    in_use[Category::gradients] = 123'456'789;
    in_use[Category::optimizer] = 246'913'578;
    in_use[Category::gather] = 10'000'000 * (i % 3);
    in_use[Category::reduce] = 10'000'000 * (i % 2);
    in_use[Category::activations] = 1'234'567 * (i < points / 2 ? i : points - i);
    in_use[Category::workspace] = 7'654'321;
    const std::string unit = "h." + std::to_string(i % 48);
    timeline.points.push_back({begin, i < points / 2 ? "forward" : "backward", unit, in_use});
    timeline.spans.push_back(
        {begin, begin + 12'000, i % 2 == 0 ? "compute" : "gather", "all_gather", unit, 10'000'000});
    timeline.peak_bytes = std::max(timeline.peak_bytes, in_use.total());
  }
  timeline.points_recorded = points;
  timeline.spans_recorded = points;
  return timeline;
}

/// A comparison of ddp, zero1, zero2 and zero3 on `ranks` ranks, with a timeline of each.
inline Json comparison_document(int ranks, std::size_t points) {
  const std::vector<std::string> names = {"ddp", "zero1", "zero2", "zero3"};
  const std::size_t each = kReportPoints / (names.size() * static_cast<std::size_t>(ranks));
  Json strategies = Json::array();
  Json timelines = Json::array();
  std::size_t bytes = 40'000'003;
  for (const std::string& name : names) {
    Json list = Json::array();
    for (int rank = 0; rank < ranks; ++rank) {
      list.push_back(rank_memory(rank, bytes));
      const StepTimeline timeline = thinned(long_timeline(points), each);
      timelines.push_back(Json::parse(timeline_json(timeline, name, rank)));
    }
    strategies.push_back({{"name", name},
                          {"seconds_per_step", 0.125},
                          {"tokens_per_second", 8192.5},
                          {"losses", {5.5, 5.25, 4.75}},
                          {"ranks", list}});
    bytes = bytes * 2 / 3;
  }
  return {{"kind", "compare"},
          {"command", "tessera compare --ranks " + std::to_string(ranks)},
          {"created", "2026-11-21T12:00:00Z"},
          {"version", "0.1.0"},
          {"model", {{"name", "custom"}, {"parameters", 123'456'789}, {"layers", 48}}},
          {"ranks", ranks},
          {"device", "cpu"},
          {"comm", "local"},
          {"batch", 2},
          {"accumulate", 1},
          {"steps", 3},
          {"seed", 1},
          {"strategies", strategies},
          {"timelines", timelines}};
}

/// Arranges the ranks of `document` along pipe and tensor, with a schedule of two micro-batches and
/// records of it.
inline void add_pipeline(Json& document) {
  document["mesh"] = {{"pipe", 2}, {"tensor", document["ranks"].get<int>() / 2}};
  const Json spans = {{{0, 1, "forward", 0, 0},
                       {1, 2, "forward", 0, 1},
                       {4, 6, "backward", 0, 0},
                       {7, 9, "backward", 0, 1}},
                      {{1, 2, "forward", 1, 0},
                       {2, 4, "backward", 1, 0},
                       {4, 5, "forward", 1, 1},
                       {5, 7, "backward", 1, 1}}};
  document["pipeline"] = {{"schedule", "1f1b"},       {"stages", 2}, {"micro_batches", 2},
                          {"bubble", 1.0 / 3},        {"length", 9}, {"ranks", spans},
                          {"recorded", Json::array()}};
  document["pipeline"]["recorded"].push_back(
      {{"strategy", "zero1"}, {"step", 3}, {"length", 9.5}, {"ranks", spans}});
}

inline Json plan_document() {
  Json document = comparison_document(4, 10);
  document["kind"] = "plan";
  document["ranks"] = 1024;
  document["budget_bytes"] = 500'000'000;
  document.erase("timelines");
  document.erase("steps");
  for (Json& strategy : document["strategies"]) {
    for (const char* name : {"losses", "seconds_per_step", "tokens_per_second"}) {
      strategy.erase(name);
    }
    strategy["ranks"][1]["count"] = 1021;
    strategy["fits"] = strategy["name"] == "zero3";
  }
  return document;
}

inline Json training_document() {
  Json document = comparison_document(2, 10);
  document["kind"] = "train";
  document["strategies"] = Json::array({document["strategies"][3]});
  document["strategies"][0].erase("losses");
  document["timelines"] = Json::array({document["timelines"][6]});
  document["steps"] = Json::array();
  for (int step = 1; step <= 40; ++step) {
    // A loss that is not finite is null in JSON.
    const Json loss = step == 17 ? Json() : Json(5.0 / step);
    document["steps"].push_back({{"step", step}, {"loss", loss}, {"seconds", 0.1 + 0.001 * step}});
  }
  return document;
}

inline Json scale_document() {
  const std::vector<int> ranks = {1, 2, 4, 64, 1024};
  Json strategies = Json::array();
  for (const char* name : {"ddp", "zero3"}) {
    Json largest = Json::array();
    for (const int n : ranks) {
      const std::int64_t divisor = std::string{name} == "ddp" ? 1 : n;
      largest.push_back({{"ranks", n},
                         {"parameters", 1'500'000'000 * divisor},
                         {"peak_bytes", 25'000'000'000 + n},
                         {"measured_peak_bytes", n < 4 ? Json(25'000'000'000 + n) : Json()},
                         {"layers", 48},
                         {"hidden", 1600}});
    }
    strategies.push_back({{"name", name}, {"largest", largest}});
  }
  return {{"kind", "scale"},       {"command", "tessera scale"},
          {"family", "gpt2-like"}, {"budget_bytes", 25'769'803'776},
          {"ranks", ranks},        {"strategies", strategies}};
}

}  // namespace tessera::test

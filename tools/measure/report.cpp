#include "tools/measure/report.hpp"

#include <utility>

namespace tessera::bench {
namespace {

Json json_of(const Timed& timed, Work work) {
  return {{"name", timed.name},
          {"bytes", timed.bytes},
          {"flops", timed.flops},
          {"seconds", json_of(timed.series)},
          {work == Work::bytes ? "bytes_per_second" : "flops_per_second", timed.rate(work)}};
}

}  // namespace

Json json_of(const Series& series) {
  return {{"min", series.least()}, {"median", series.median()}, {"all", series.seconds}};
}

Json json_of(const Comparison& comparison) {
  Json limits = Json::array();
  for (const Timed& limit : comparison.limits) {
    Json entry = json_of(limit, comparison.work);
    entry["ratio"] = comparison.ratio(limit);
    entry["ratio_of_best"] = comparison.best_ratio(limit);
    limits.push_back(std::move(entry));
  }
  Json json = json_of(comparison.ours, comparison.work);
  json["limits"] = std::move(limits);
  return json;
}

Json json_of(const StrategySteps& steps) {
  return {{"name", to_string(steps.strategy)},
          {"seconds", json_of(steps.series)},
          {"cpu_seconds_per_rank", json_of(steps.cpu)},
          {"loss", steps.loss},
          {"shares",
           {{"forward", steps.shares.forward},
            {"backward", steps.shares.backward},
            {"update", steps.shares.update},
            {"waiting", steps.shares.waiting},
            {"moving", steps.shares.moving}}}};
}

Json json_of(const StepResult& result) {
  Json strategies = Json::array();
  for (const StrategySteps& steps : result.strategies) {
    Json entry = json_of(steps);
    entry["flops_per_second"] = result.flops / steps.series.median();
    entry["ratio"] = result.limit_ratio(steps);
    strategies.push_back(std::move(entry));
  }
  return {{"flops", result.flops},
          {"products",
           {{"flops", result.product_flops},
            {"seconds", json_of(result.products)},
            {"flops_per_second", result.product_rate()}}},
          {"strategies", std::move(strategies)}};
}

Json json_of(const std::vector<ScalingPoint>& points) {
  Json all = Json::array();
  for (std::size_t p = 0; p < points.size(); ++p) {
    Json strategies = Json::array();
    for (std::size_t s = 0; s < points[p].strategies.size(); ++s) {
      const ScaledSteps& steps = points[p].strategies[s];
      const AgainstTwo against = against_two(points, p, s);
      strategies.push_back({{"name", to_string(steps.strategy)},
                            {"seconds", json_of(steps.series)},
                            {"against_two", against.seconds},
                            {"cpu_seconds", json_of(steps.cpu)},
                            {"cpu_against_two", against.cpu}});
    }
    all.push_back({{"ranks", points[p].ranks}, {"strategies", std::move(strategies)}});
  }
  return all;
}

Json json_of(const std::vector<RecordingCost>& costs) {
  Json all = Json::array();
  for (const RecordingCost& cost : costs) {
    all.push_back({{"name", to_string(cost.strategy)},
                   {"records", cost.records},
                   {"seconds_off", json_of(cost.off)},
                   {"seconds_on", json_of(cost.on)},
                   {"cpu_seconds_off", json_of(cost.cpu_off)},
                   {"cpu_seconds_on", json_of(cost.cpu_on)},
                   {"added_seconds", cost.seconds_part()},
                   {"added_cpu_seconds", cost.cpu_part()}});
  }
  return all;
}

Json json_of(const std::vector<FeatureCosts>& costs) {
  Json all = Json::array();
  for (const FeatureCosts& cost : costs) {
    Json features = Json::array();
    for (const FeatureSteps& feature : cost.features) {
      features.push_back({{"name", feature.name},
                          {"seconds", json_of(feature.series)},
                          {"cpu_seconds", json_of(feature.cpu)},
                          {"seconds_ratio", cost.seconds_ratio(feature)},
                          {"cpu_ratio", cost.cpu_ratio(feature)},
                          {"reduced_bytes", feature.reduced_bytes}});
    }
    all.push_back({{"name", to_string(cost.strategy)}, {"features", std::move(features)}});
  }
  return all;
}

Json json_of(const CheckpointTimes& times) {
  return {{"bytes", times.bytes}, {"save", json_of(times.save)}, {"load", json_of(times.load)}};
}

Json json_of(const AsynchronousCost& cost) {
  return {{"bytes", cost.bytes},
          {"plain", json_of(cost.plain)},
          {"saving", json_of(cost.saving)},
          {"copies", json_of(cost.copies)},
          {"waiting_part", cost.waiting_part()}};
}

}  // namespace tessera::bench

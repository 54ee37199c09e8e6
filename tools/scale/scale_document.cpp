#include "tools/scale/scale_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/bytes.hpp"
#include "tools/common/table.hpp"
#include "tools/options/arguments.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/plan_document.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> against_ddp(const ScaleResult& result, const ScalePoint& point) {
  const ScalePoint* ddp = result.find(Strategy::ddp, point.ranks);
  if (ddp == nullptr || !ddp->fits() || !point.fits()) { return {}; }
  return static_cast<double>(point.model.parameter_elems()) /
         static_cast<double>(ddp->model.parameter_elems());
}

std::optional<std::size_t> measured_peak(const ScalePoint& point) {
  if (!point.measured || point.measured->peak_bytes.empty()) { return {}; }
  return std::ranges::max(point.measured->peak_bytes);
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const ScaleResult& result, const ScalePoint& point) {
  const nn::DecoderConfig& model = point.model;
  const auto if_fits = [&](const Json& value) { return point.fits() ? value : Json(); };
  Json json = {{"ranks", point.ranks},
               {"parameters", if_fits(model.parameter_elems())},
               {"peak_bytes", if_fits(point.peak_bytes())},
               {"measured_peak_bytes", or_null(measured_peak(point))},
               {"layers", if_fits(model.layers)},
               {"hidden", if_fits(model.hidden)},
               {"heads", if_fits(model.heads)},
               {"key_heads", if_fits(model.key_heads())},
               {"head_size", if_fits(model.head_size())},
               {"mlp", if_fits(model.mlp_elems())},
               {"ratio_to_ddp", or_null(against_ddp(result, point))},
               {"comm", to_string(planned_comm(result.settings, point.ranks))},
               {"last_of_family", point.last_of_family},
               {"at_peak", if_fits(tools::json_of(point.plan.fullest().memory.at_peak))}};
  const Settings typed = settings_of_point(result.settings, point.strategy, point.ranks);
  for (const auto& [name, size] : typed.sharded.mesh) { json["mesh"][name] = size; }
  if (point.measured && point.measured->peak_bytes.empty()) {
    json["not_measured"] = point.measured->reason;
  }
  return json;
}

std::string describe(const ScaleResult& result) {
  const Settings& settings = result.settings;
  const Family& family = result.family;
  const std::string threads =
      settings.world.threads > 1 ? fmt::format(", {} threads a rank", settings.world.threads) : "";
  const std::string dtypes = describe_precision(settings) + describe_optimizer(settings);
  const std::string members = fmt::format("{}, vocab {}, seq {}", family.rule(),
                                          family.published.vocab, family.published.seq);
  return fmt::format(
      "The largest {} model that fits {} on every rank\n"
      "{}\n"
      "{} samples a {} and micro-batch, {} micro-batches a step, prefetch {}{}, {}{}{}\n\n",
      family.name, format_bytes(result.budget_bytes), wrapped(members, 98, 2), settings.batch,
      data_rank_word(settings), settings.sharded.accumulate, settings.sharded.prefetch,
      describe_groups(settings), dtypes, describe_forward(settings), threads);
}

std::string measured_cell(const ScalePoint& point) {
  if (const auto peak = measured_peak(point)) { return fmt::format("{}", *peak); }
  return "- " + point.measured->why_not;
}

/// The cells of a point after its strategy.
std::vector<std::string> cells(const ScaleResult& result, const ScalePoint& point) {
  std::vector<std::string> row = {fmt::format("{}", point.ranks)};
  if (point.fits()) {
    const auto ratio = against_ddp(result, point);
    row.insert(row.end(), {format_count(point.model.parameter_elems()),
                           fmt::format("{}{}", point.model.layers, point.last_of_family ? "*" : ""),
                           fmt::format("{}", point.model.hidden), format_bytes(point.peak_bytes()),
                           ratio ? fmt::format("{:.2f}", *ratio) : "-"});
  } else {
    row.insert(row.end(), {"none fits", "-", "-", "-", "-"});
  }
  if (result.settings.measure) {
    row.push_back(point.fits() ? fmt::format("{}", point.peak_bytes()) : "-");
    row.push_back(measured_cell(point));
  }
  return row;
}

std::string table_of(const ScaleResult& result) {
  std::vector<std::string> head = {"strategy", "ranks", "parameters", "layers",
                                   "hidden",   "peak",  "/ddp"};
  if (result.settings.measure) { head.insert(head.end(), {"planned bytes", "measured bytes"}); }
  Table table{head};
  const ScalePoint* before = nullptr;
  for (const ScalePoint& point : result.points) {
    const bool first = before == nullptr || before->strategy != point.strategy;
    std::vector<std::string> row = {first ? std::string{to_string(point.strategy)} : ""};
    for (std::string& cell : cells(result, point)) { row.push_back(std::move(cell)); }
    table.add(std::move(row));
    before = &point;
  }
  return table.text();
}

/// One line per kind of reason, with the first such reason.
std::string reasons(const ScaleResult& result) {
  std::map<std::string, const ScalePoint*> kinds;
  for (const ScalePoint& point : result.points) {
    if (point.measured && !point.measured->why_not.empty()) {
      kinds.try_emplace(point.measured->why_not, &point);
    }
  }
  std::string text;
  for (const auto& [why, point] : kinds) {
    text += fmt::format("not measured, {}: {} ({} on {} ranks)\n", why, point->measured->reason,
                        to_string(point->strategy), point->ranks);
  }
  return text;
}

}  // namespace

const ScalePoint* ScaleResult::find(Strategy strategy, int ranks) const {
  const auto found = std::ranges::find_if(points, [&](const ScalePoint& point) {
    return point.strategy == strategy && point.ranks == ranks;
  });
  return found == points.end() ? nullptr : &*found;
}

Json scale_json(const ScaleResult& result) {
  const Settings& settings = result.settings;
  Json strategies = Json::array();
  for (const Strategy strategy : settings.strategies) {
    Json all = Json::array();
    for (const int ranks : settings.rank_counts) {
      all.push_back(json_of(result, *result.find(strategy, ranks)));
    }
    strategies.push_back({{"name", to_string(strategy)}, {"largest", all}});
  }
  const Family& family = result.family;
  Json json = {{"kind", "scale"},
               {"command", settings.command_line},
               {"version", TESSERA_VERSION},
               {"family", family.name},
               {"rule", family.rule()},
               {"vocab", family.published.vocab},
               {"seq", family.published.seq},
               {"budget_bytes", result.budget_bytes},
               {"ranks", settings.rank_counts},
               {"device", "cpu"},
               {"batch", settings.batch},
               {"accumulate", settings.sharded.accumulate},
               {"accumulate_mode", to_string(settings.sharded.accumulate_mode)},
               {"shard_group", shard_group_json(settings)},
               {"prefetch", settings.sharded.prefetch},
               {"threads", settings.world.threads},
               {"precision", to_string(settings.sharded.compute)},
               {"gradient_dtype", to_string(settings.sharded.gradient)},
               {"reduce_dtype", to_string(settings.sharded.reduce)},
               {"norm_dtype", to_string(settings.norm_dtype.value_or(settings.sharded.compute))},
               {"recompute", settings.recompute.describe()},
               {"head_rows", settings.head_rows},
               {"offload", offload_name(settings)},
               {"offload_keep", shortest(settings.sharded.offload_keep)},
               {"dropout", shortest(settings.dropout)},
               {"optimizer", to_string(settings.optimizer)},
               {"moments", to_string(settings.update.moments)},
               {"master_weights", to_string(settings.sharded.master_weights)},
               {"strategies", strategies}};
  add_mesh(json, settings);
  return json;
}

std::string scale_text(const ScaleResult& result) {
  std::string text =
      describe(result) + table_of(result) +
      "(peak of the fullest rank; /ddp: parameters as a multiple of ddp's on as many "
      "ranks)\n";
  if (std::ranges::any_of(result.points, &ScalePoint::last_of_family)) {
    text += "(* the largest of the family; the budget has room for more)\n";
  }
  return text + reasons(result);
}

std::string format_count(std::int64_t count) {
  auto value = static_cast<double>(count);
  std::string_view unit;
  for (const std::string_view next : {" k", " M", " B", " T"}) {
    if (value < 999.5) { break; }
    value /= 1000;
    unit = next;
  }
  const int digits = unit.empty() || value >= 99.95 ? 0 : value < 9.995 ? 2 : 1;
  return fmt::format("{:.{}f}{}", value, digits, unit);
}

}  // namespace tessera::tools

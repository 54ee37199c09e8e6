#include "tools/plan/plan_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/base/bytes.hpp"
#include "tools/common/table.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/model_words.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/resharding.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/budget.hpp"
#include "tools/plan/plan_pipeline.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const trace::Moment& moment) {
  return {{"phase", to_string(moment.phase)}, {"unit", moment.unit}, {"step", moment.step}};
}

Json json_of(const Settings& settings, const RankPlan& rank) {
  const MemoryReport& memory = rank.memory;
  Json json = {{"rank", rank.rank}, {"count", rank.count}};
  for (const PlaceRange& range : places_of(settings, rank.ranks)) {
    json["places"][range.dimension] = {range.first, range.last};
  }
  json.update({{"planned_peak_bytes", memory.peak_bytes},
               {"peak_bytes", memory.peak_bytes},  // of the run that only counted
               {"at_peak", tools::json_of(memory.at_peak)},
               {"model_state_bytes", tools::json_of(rank.state)},
               {"peak_at", json_of(memory.peak_at)},
               {"most_in_use_bytes", memory.most_in_use_bytes},
               {"most_in_use", tools::json_of(memory.most_in_use)},
               {"most_in_use_at", json_of(memory.most_in_use_at)}});
  add_host_pool(json, rank.host_peak_bytes, rank.host_peak_bytes);
  return json;
}

Json json_of(const Settings& settings, const StrategyPlan& plan) {
  Json ranks = Json::array();
  for (const RankPlan& rank : plan.ranks) { ranks.push_back(json_of(settings, rank)); }
  const Json verdict =
      settings.world.budget_bytes ? Json(fits(plan, *settings.world.budget_bytes)) : Json();
  return {{"name", to_string(plan.strategy)}, {"fits", verdict}, {"ranks", ranks}};
}

Json model_json(const Settings& settings) {
  if (settings.params) {
    return {{"name", "stack of equal units"}, {"parameters", *settings.params}};
  }
  const NamedModel model = settings.named_model();
  const nn::DecoderConfig& config = model.config;
  return tools::model_json(model.name, config.parameter_elems(), config);
}

std::string model_line(const Settings& settings) {
  if (settings.params) {
    return fmt::format("{} parameters in a stack of equal units: model states and slots alone\n",
                       *settings.params);
  }
  const NamedModel model = settings.named_model();
  const nn::DecoderConfig& config = model.config;
  return fmt::format("{}: {} parameters ({})\n", model.name, config.parameter_elems(),
                     describe_sizes(config));
}

/// "0", "1-1023", or, with a mesh that splits the model, "pipe 0", "pipe 1 tensor 0-2".
std::string ranks_of(const Settings& settings, const RankPlan& rank) {
  std::string text;
  for (const auto& [dimension, first, last] : places_of(settings, rank.ranks)) {
    if (last - first + 1 == ranks_along(settings, dimension.c_str())) { continue; }
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", dimension, first);
    if (last > first) { text += fmt::format("-{}", last); }
  }
  if (!text.empty()) { return text; }
  return rank.count == 1 ? std::to_string(rank.rank)
                         : fmt::format("{}-{}", rank.rank, rank.rank + rank.count - 1);
}

/// Formats in powers of 1000, as papers give model states.
std::string decimal(std::size_t bytes) {
  double value = static_cast<double>(bytes);
  std::string_view unit = "B";
  for (const std::string_view next : {"KB", "MB", "GB", "TB", "PB", "EB"}) {
    if (value < 999.5) { break; }
    value /= 1000;
    unit = next;
  }
  const int digits = unit == "B" || value >= 99.95 ? 0 : value < 9.995 ? 2 : 1;
  return fmt::format("{:.{}f} {}", value, digits, unit);
}

std::string verdict(const RankPlan& rank, std::size_t budget) {
  const std::size_t peak = rank.memory.peak_bytes;
  return peak <= budget ? "fits" : fmt::format("{} over", format_bytes(peak - budget));
}

/// Calls `add(strategy, rank)` for every row of a table; the strategy is empty in all but its first
/// row.
template <class Add>
void for_each_row(const std::vector<StrategyPlan>& plans, const Add& add) {
  for (const StrategyPlan& plan : plans) {
    for (const RankPlan& rank : plan.ranks) {
      add(&rank == &plan.ranks.front() ? std::string{to_string(plan.strategy)} : "", rank);
    }
  }
}

std::string composition_table(const Settings& settings, const std::vector<StrategyPlan>& plans) {
  Table table{{"strategy", "ranks", "params", "grads", "optim", "gather", "reduce", "activ.",
               "other", "peak"}};
  for_each_row(plans, [&](const std::string& strategy, const RankPlan& rank) {
    const CategoryBytes& bytes = rank.memory.at_peak;
    std::vector<std::string> row = {strategy, ranks_of(settings, rank)};
    std::size_t named = 0;
    for (const Category category : {Category::parameters, Category::gradients, Category::optimizer,
                                    Category::gather, Category::reduce, Category::activations}) {
      row.push_back(format_bytes(bytes[category]));
      named += bytes[category];
    }
    row.push_back(format_bytes(bytes.total() - named));
    row.push_back(format_bytes(rank.memory.peak_bytes));
    table.add(std::move(row));
  });
  return table.text();
}

std::string use_table(const Settings& settings, const std::vector<StrategyPlan>& plans) {
  std::vector<std::string> head = {"strategy",    "ranks",    "model states",
                                   "most in use", "in phase", "of unit"};
  if (settings.world.budget_bytes) { head.push_back(format_bytes(*settings.world.budget_bytes)); }
  Table table{head};
  for_each_row(plans, [&](const std::string& strategy, const RankPlan& rank) {
    const MemoryReport& memory = rank.memory;
    const ModelStateBytes& state = rank.state;
    const std::string& unit = memory.most_in_use_at.unit;
    std::vector<std::string> row = {strategy,
                                    ranks_of(settings, rank),
                                    decimal(state.parameters + state.gradients + state.optimizer),
                                    format_bytes(memory.most_in_use_bytes),
                                    std::string{to_string(memory.most_in_use_at.phase)},
                                    unit.empty() ? "-" : unit};
    if (settings.world.budget_bytes) { row.push_back(verdict(rank, *settings.world.budget_bytes)); }
    table.add(std::move(row));
  });
  return table.text();
}

}  // namespace

namespace {

/// A line on the strategy and rank that offload the most; empty without offload.
std::string host_line(const std::vector<StrategyPlan>& plans) {
  std::size_t most = 0;
  for (const StrategyPlan& plan : plans) {
    for (const RankPlan& rank : plan.ranks) { most = std::max(most, rank.host_peak_bytes); }
  }
  if (most == 0) { return {}; }
  return fmt::format("(beside it {} in the host pool)\n", format_bytes(most));
}

}  // namespace

double shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double read = 0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  return read;
}

void add_host_pool(Json& rank, std::size_t planned_bytes, std::size_t bytes) {
  if (planned_bytes == 0 && bytes == 0) { return; }
  rank["planned_host_peak_bytes"] = planned_bytes;
  rank["host_peak_bytes"] = bytes;
}

Json json_of(const CategoryBytes& bytes) {
  Json json;
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    json[std::string{to_string(category)}] = bytes[category];
  }
  return json;
}

Json json_of(const ModelStateBytes& bytes) {
  Json json = {{"parameters", bytes.parameters},
               {"gradients", bytes.gradients},
               {"optimizer", bytes.optimizer}};
  if (bytes.host > 0) { json["host"] = bytes.host; }
  return json;
}

void add_mesh(Json& json, const Settings& settings) {
  for (const auto& [name, size] : settings.sharded.mesh) { json["mesh"][name] = size; }
  if (ranks_along(settings, "tensor") > 1) {
    json["sequence_parallel"] = settings.sequence_parallel;
    json["tensor_slices"] = settings.tensor_slices;
  }
  if (ranks_along(settings, "pipe") > 1) { json["pipeline"] = pipeline_json(settings); }
}

Json place_json(const Settings& settings, int rank) {
  if (settings.sharded.mesh.empty()) { return {}; }
  Json place;
  const MeshShape mesh{settings.sharded.mesh};
  const std::vector<int> coordinates = mesh.coordinates_of(rank);
  for (std::size_t d = 0; d < coordinates.size(); ++d) {
    place[mesh.dims()[d].name] = coordinates[d];
  }
  return place;
}

Json shard_group_json(const Settings& settings) {
  return settings.sharded.shard_group > 0 ? Json(settings.sharded.shard_group) : Json();
}

Json plan_json(const Settings& settings, const std::vector<StrategyPlan>& plans) {
  Json strategies = Json::array();
  for (const StrategyPlan& plan : plans) { strategies.push_back(json_of(settings, plan)); }
  Json json = {{"model", model_json(settings)},
               {"ranks", settings.ranks},
               {"device", to_string(settings.world.device)},
               {"comm", to_string(planned_comm(settings, settings.ranks))},
               {"precision", to_string(settings.sharded.compute)},
               {"gradient_dtype", to_string(settings.sharded.gradient)},
               {"reduce_dtype", to_string(settings.sharded.reduce)},
               {"optimizer", to_string(settings.optimizer)},
               {"moments", to_string(settings.update.moments)},
               {"master_weights", to_string(settings.sharded.master_weights)},
               {"shard_group", shard_group_json(settings)},
               {"prefetch", settings.sharded.prefetch},
               {"prefetch_backward",
                settings.sharded.tuning.prefetch_backward.value_or(settings.sharded.prefetch)},
               {"reshard", to_string(settings.sharded.reshard)},
               {"persist_elems", settings.sharded.persist_elems},
               {"accumulate", settings.sharded.accumulate},
               {"accumulate_mode", to_string(settings.sharded.accumulate_mode)},
               {"offload", offload_name(settings)},
               {"offload_keep", shortest(settings.sharded.offload_keep)}};
  add_mesh(json, settings);
  if (!settings.params) {
    json["threads"] = settings.world.threads;
    json["batch"] = settings.batch;
    json["norm_dtype"] = to_string(settings.norm_dtype.value_or(settings.sharded.compute));
    json["recompute"] = settings.recompute.describe();
    json["head_rows"] = settings.head_rows;
    json["dropout"] = shortest(settings.dropout);
  }
  json["budget_bytes"] = settings.world.budget_bytes ? Json(*settings.world.budget_bytes) : Json();
  json["strategies"] = strategies;
  return json;
}

std::string describe_plan(const Settings& settings) {
  const std::string samples = settings.params
                                  ? ""
                                  : fmt::format("{} samples a {} and micro-batch, ", settings.batch,
                                                data_rank_word(settings));
  const std::string threads =
      settings.world.threads > 1 ? fmt::format(" of {} threads", settings.world.threads) : "";
  return model_line(settings) +
         fmt::format("{} ranks ({}{}){}, {}{} micro-batches a step, {}{}, {}{}\n", settings.ranks,
                     settings.world.device == DeviceKind::cuda ? "cuda, " : "",
                     to_string(planned_comm(settings, settings.ranks)), threads, samples,
                     settings.sharded.accumulate, describe_resharding(settings),
                     describe_groups(settings),
                     describe_precision(settings) + describe_optimizer(settings),
                     describe_forward(settings));
}

std::string plan_text(const Settings& settings, const std::vector<StrategyPlan>& plans) {
  return composition_table(settings, plans) +
         "(bytes a rank holds at its peak; gather and reduce are slots; other is workspace and "
         "communicator)\n" +
         host_line(plans) + pipeline_line(settings) + "\n" + use_table(settings, plans) +
         "(model states in powers of 1000; in use leaves out slots and activations that are "
         "idle)\n";
}

}  // namespace tessera::tools

#include "tools/bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "tools/bench/bench_options.hpp"
#include "tools/common/input_file.hpp"
#include "tools/common/machine.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/table.hpp"
#include "tools/measure/checkpoints.hpp"
#include "tools/measure/collectives.hpp"
#include "tools/measure/machine.hpp"
#include "tools/measure/operations.hpp"
#include "tools/measure/products.hpp"
#include "tools/measure/recording.hpp"
#include "tools/measure/report.hpp"

namespace tessera::tools {
namespace {

using bench::Json;

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

std::string giga(double value) {
  return fmt::format("{:.2f}", value * 1e-9);
}

void add_row(Table& table, const bench::Comparison& comparison, const bench::Timed& timed) {
  const bool own = &timed == &comparison.ours;
  table.add({timed.name, giga(timed.bytes), giga(timed.flops), milliseconds(timed.series.least()),
             milliseconds(timed.series.median()), giga(timed.bytes / timed.series.median()),
             own ? "" : fmt::format("{:.3f}", comparison.ratio(timed)),
             own ? "" : fmt::format("{:.3f}", comparison.best_ratio(timed))});
}

void print(const std::vector<bench::Comparison>& comparisons) {
  Table table{{"", "GB", "GFLOP", "ms least", "ms median", "GB/s", "ours/this", "of least"}};
  for (const bench::Comparison& comparison : comparisons) {
    add_row(table, comparison, comparison.ours);
    for (const bench::Timed& limit : comparison.limits) { add_row(table, comparison, limit); }
  }
  fmt::print("{}(ours/this: our rate as a part of this line's, median over the rounds)\n",
             table.text());
}

Json machine_json() {
  return {{"processor", processor_name()}, {"cores", usable_cores()}};
}

/// The profile itself is the document, so that `tessera plan --time` can read it.
Json profile(const BenchSettings& settings) {
  bench::MachineOptions options;
  options.cores = usable_cores();
  options.rounds = settings.repeat;
  options.models = bench::machine_models(settings.widest);
  bench::MeasuredMachine measured = bench::measure_machine(options);
  MachineProfile& profile = measured.profile;
  profile.name = fmt::format("{} ({} cores)", processor_name(), options.cores);
  profile.source = "tessera bench machine";
  Table table{{"", "GFLOP/s", "GB/s", "us"}};
  for (const auto& [dtype, rate] : profile.flops_per_second) {
    table.add({fmt::format("products, {}", to_string(dtype)), giga(rate), "", ""});
  }
  const auto micros = [](double seconds) { return fmt::format("{:.2f}", seconds * 1e6); };
  const double step = profile.levels.front().step_seconds.front();
  table.add({"AdamW", "", giga(profile.bytes_per_second), ""});
  table.add({"gathering", "", giga(profile.levels.front().bytes_per_second), ""});
  table.add({"reducing", "", giga(profile.reduce_bytes_per_second), ""});
  table.add({"ranks meeting", "", "", micros(profile.protocols.front().start_seconds)});
  table.add({"  and each rank", "", "", micros(step)});
  table.add({"enqueuing", "", "", micros(profile.enqueue_seconds)});
  fmt::print(
      "{}: {} kinds and sizes of kernels, {} times alone\n{}(spread of a kernel's times with all "
      "cores at work: {:.1f} %, between quartiles)\n",
      profile.name, profile.kernels.size(), measured.times, table.text(), 100 * measured.spread);
  Json json = Json::parse(machine_profile_json(profile));
  json["measured"] = {
      {"rounds", settings.repeat}, {"times", measured.times}, {"spread", measured.spread}};
  return json;
}

/// The profile of a GPU, from the samples that scripts/gpu_check.sh measured.
Json profile_from(const std::string& path) {
  const std::string text = read_input("--from", path);
  MeasuredDevice device;
  try {
    device = profile_of_samples(text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--from {}: {}", path, error.what()));
  }
  const MachineProfile& profile = device.profile;
  fmt::print("{} ({}): {} kernels, products in bf16 up to {} TFLOP/s, copies {} GB/s\n",
             profile.name, profile.source, profile.kernels.size(),
             giga(profile.flops_per_second.at(DType::bf16) * 1e-3), giga(profile.bytes_per_second));
  for (const std::string& what : device.not_measured) { fmt::print("not measured: {}\n", what); }
  return Json::parse(machine_profile_json(profile));
}

double nanoseconds(const bench::Timed& timed, const BenchSettings& settings) {
  return timed.series.median() * 1e9 / static_cast<double>(settings.parameters);
}

/// `where` is "" or " as an offloaded optimizer runs it".
Json adamw(const BenchSettings& settings, const bench::Comparison& result, const char* where) {
  fmt::print("AdamW{}, fp32, {} parameters, one thread: 28 bytes and 16 FLOPs a parameter\n", where,
             settings.parameters);
  print({result});
  const double each = nanoseconds(result.ours, settings);
  fmt::print("{:.3f} ns a parameter\n", each);
  Json json = bench::json_of(result);
  json["parameters"] = settings.parameters;
  json["nanoseconds_per_parameter"] = each;
  return json;
}

Json remainders(const BenchSettings& settings) {
  const bench::Comparison result =
      bench::measure(bench::adamw_remainders(settings.parameters), settings.repeat);
  fmt::print("\nThe same with bf16 parameters: remainders of master weights beside whole ones\n");
  print({result});
  return bench::json_of(result);
}

Json int8_moments(const BenchSettings& settings) {
  const bench::Comparison result =
      bench::measure(bench::adamw_int8(settings.parameters), settings.repeat);
  const double slower = bench::median_ratio(result.ours.series, result.limits.front().series);
  const double each = nanoseconds(result.ours, settings);
  fmt::print("\nWith moments of 8 bits: 16 1/16 bytes a parameter\n");
  print({result});
  fmt::print("{:.3f} ns a parameter, {:.2f} of the time with fp32 moments\n", each, slower);
  Json json = bench::json_of(result);
  json["nanoseconds_per_parameter"] = each;
  json["time_of_fp32_moments"] = slower;
  return json;
}

Json adamw(const BenchSettings& settings) {
  Json json =
      adamw(settings, bench::measure(bench::adamw(settings.parameters), settings.repeat), "");
  json["remainders"] = remainders(settings);
  json["int8_moments"] = int8_moments(settings);
  return json;
}

Json offload(const BenchSettings& settings) {
  bench::Comparison result;
  run_ranks(1, [&](World& world) {
    result = bench::measure(bench::offloaded_adamw(world, settings.parameters), settings.repeat);
  });
  return adamw(settings, result, " as an offloaded optimizer runs it");
}

Json collectives(const BenchSettings& settings) {
  const auto results = bench::measure_collectives(
      bench::all_collectives(), {settings.bytes, settings.step.ranks, settings.repeat});
  fmt::print("Collectives over local, {} ranks, {} bytes each; bytes of all ranks\n",
             settings.step.ranks, settings.bytes);
  print(results);
  Json all = Json::array();
  for (const bench::Comparison& result : results) { all.push_back(bench::json_of(result)); }
  return {{"bytes", settings.bytes}, {"ranks", settings.step.ranks}, {"collectives", all}};
}

void print(const bench::StepResult& result) {
  Table table{{"strategy", "ms least", "ms median", "CPU ms", "GFLOP/s", "of products", "forward",
               "backward", "update", "waiting", "moving"}};
  const auto part = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  for (const bench::StrategySteps& steps : result.strategies) {
    table.add({std::string{to_string(steps.strategy)}, milliseconds(steps.series.least()),
               milliseconds(steps.series.median()), milliseconds(steps.cpu.median()),
               giga(result.flops / steps.series.median()),
               fmt::format("{:.3f}", result.limit_ratio(steps)), part(steps.shares.forward),
               part(steps.shares.backward), part(steps.shares.update), part(steps.shares.waiting),
               part(steps.shares.moving)});
  }
  fmt::print("{}", table.text());
  fmt::print("limit: the model's products with weights, {} GFLOP in {} ms: {} GFLOP/s a rank\n",
             giga(result.product_flops), milliseconds(result.products.median()),
             giga(result.product_rate()));
}

void print(const std::vector<bench::ScalingPoint>& points) {
  Table table{
      {"strategy", "ranks", "ms least", "ms median", "of 2 ranks", "CPU ms", "CPU of 2 ranks"}};
  for (std::size_t s = 0; s < points.front().strategies.size(); ++s) {
    for (std::size_t p = 0; p < points.size(); ++p) {
      const bench::ScaledSteps& steps = points[p].strategies[s];
      const bench::AgainstTwo against = bench::against_two(points, p, s);
      table.add({p == 0 ? std::string{to_string(steps.strategy)} : "",
                 fmt::format("{}", points[p].ranks), milliseconds(steps.series.least()),
                 milliseconds(steps.series.median()), fmt::format("{:.3f}", against.seconds),
                 milliseconds(steps.cpu.median()), fmt::format("{:.3f}", against.cpu)});
    }
  }
  fmt::print(
      "\nThe same work on more ranks, in turn in each round; CPU ms of all ranks together\n{}",
      table.text());
}

Json scaling(const BenchSettings& settings) {
  bench::ScalingOptions options{settings.step};
  options.step.batch = 2 * settings.step.batch;
  options.step.rounds = std::max(3, settings.repeat / 2);
  const std::vector<bench::ScalingPoint> points = bench::measure_scaling(options);
  print(points);
  return bench::json_of(points);
}

void print(const std::vector<bench::RecordingCost>& costs) {
  Table table{
      {"strategy", "records", "ms off", "ms on", "added", "CPU ms off", "CPU ms on", "added"}};
  const auto part = [](double share) { return fmt::format("{:+.2f} %", 100 * share); };
  for (const bench::RecordingCost& cost : costs) {
    table.add({std::string{to_string(cost.strategy)}, fmt::format("{}", cost.records),
               milliseconds(cost.off.median()), milliseconds(cost.on.median()),
               part(cost.seconds_part()), milliseconds(cost.cpu_off.median()),
               milliseconds(cost.cpu_on.median()), part(cost.cpu_part())});
  }
  fmt::print("\nSteps without and with records, in turn\n{}", table.text());
}

Json recording(const BenchSettings& settings) {
  const std::vector<bench::RecordingCost> costs = bench::measure_recording(settings.step);
  print(costs);
  return bench::json_of(costs);
}

void print(const std::vector<bench::FeatureCosts>& costs) {
  Table table{{"strategy", "step", "ms", "of plain", "CPU ms", "of plain", "reduced MB"}};
  for (const bench::FeatureCosts& cost : costs) {
    for (const bench::FeatureSteps& feature : cost.features) {
      table.add({std::string{to_string(cost.strategy)}, feature.name,
                 milliseconds(feature.series.median()),
                 fmt::format("{:.3f}", cost.seconds_ratio(feature)),
                 milliseconds(feature.cpu.median()), fmt::format("{:.3f}", cost.cpu_ratio(feature)),
                 fmt::format("{:.2f}", static_cast<double>(feature.reduced_bytes) * 1e-6)});
    }
  }
  fmt::print("\nSteps with one feature each beside the plain step, in turn\n{}", table.text());
}

Json features(const BenchSettings& settings) {
  const std::vector<bench::FeatureCosts> costs = bench::measure_features(settings.step);
  print(costs);
  return bench::json_of(costs);
}

Json step(const BenchSettings& settings) {
  const nn::DecoderConfig& model = settings.step.model;
  const bench::StepResult result = bench::measure_step(settings.step);
  fmt::print(
      "GPT of {} layers, hidden {}, {} heads, seq {}, vocab {}, {}, AdamW; {} ranks of one "
      "thread, batch {} each: {} GFLOP a step and rank\n",
      model.layers, model.hidden, model.heads, model.seq, model.vocab,
      to_string(settings.step.precision), settings.step.ranks, settings.step.batch,
      giga(result.flops));
  print(result);
  Json json = bench::json_of(result);
  json["parameters"] = model.parameter_elems();
  json["precision"] = to_string(settings.step.precision);
  json["ranks"] = settings.step.ranks;
  json["batch"] = settings.step.batch;
  if (settings.step.shard_group > 0) { json["shard_group"] = settings.step.shard_group; }
  if (settings.scaling) { json["scaling"] = scaling(settings); }
  if (settings.recording) { json["recording"] = recording(settings); }
  if (settings.features) { json["features"] = features(settings); }
  return json;
}

Json checkpoint(const BenchSettings& settings) {
  const bench::CheckpointTimes times = bench::measure_checkpoints(settings.step, settings.folder);
  fmt::print("A GPT's training state, {:.1f} MB, one rank; writes flushed, reads from the disk\n",
             static_cast<double>(times.bytes) * 1e-6);
  print({times.save, times.load});
  const bench::AsynchronousCost cost =
      bench::measure_asynchronous_saves(settings.step, settings.folder);
  fmt::print(
      "\nA step {} ms, with an asynchronous save beside it {} ms, the copies alone {} ms: beyond "
      "the copies {:+.2f} % of a step\n",
      milliseconds(cost.plain.median()), milliseconds(cost.saving.median()),
      milliseconds(cost.copies.median()), 100 * cost.waiting_part());
  Json json = bench::json_of(times);
  json["asynchronous"] = bench::json_of(cost);
  return json;
}

/// The rate of the variant `name`; empty if it cannot compute the product.
std::string rate_of(const bench::Comparison& ways, std::string_view name) {
  const auto rate = [](const bench::Timed& timed) {
    return fmt::format("{:.0f}", timed.rate(bench::Work::flops) * 1e-9);
  };
  if (ways.ours.name == name) { return rate(ways.ours) + " *"; }
  for (const bench::Timed& other : ways.limits) {
    if (other.name == name) { return rate(other); }
  }
  return "";
}

Json products(const BenchSettings& settings) {
  const nn::DecoderConfig& model = settings.step.model;
  const auto times =
      bench::measure_products(model, settings.step.batch * model.seq, settings.repeat);
  fmt::print(
      "Products of a GPT of hidden {}, vocab {}; {} tokens, one thread: GFLOP/s, * is taken\n",
      model.hidden, model.vocab, settings.step.batch * model.seq);
  const std::string ways[] = {"Eigen", "oneDNN", "conversion"};
  Table table{{"product", "m", "n", "k", "A B C", ways[0], ways[1], ways[2]}};
  Json all = Json::array();
  for (const bench::ProductTimes& p : times) {
    table.add({p.part, std::to_string(p.m), std::to_string(p.n), std::to_string(p.k), p.dtypes,
               rate_of(p.ways, ways[0]), rate_of(p.ways, ways[1]), rate_of(p.ways, ways[2])});
    Json json = bench::json_of(p.ways);
    json.update({{"part", p.part}, {"dtypes", p.dtypes}, {"m", p.m}, {"n", p.n}, {"k", p.k}});
    all.push_back(std::move(json));
  }
  fmt::print("{}", table.text());
  return {{"products", all}};
}

}  // namespace

void run_bench(std::span<const char* const> arguments) {
  const BenchSettings settings = parse_bench(arguments);
  if (settings.what.empty()) {
    fmt::print("{}", settings.text);
    return;
  }
  Json json = !settings.from.empty()       ? profile_from(settings.from)
              : settings.what == "machine" ? profile(settings)
                                           : Json{{"bench", settings.what},
                                                  {"machine", machine_json()},
                                                  {"repeat", settings.repeat}};
  json.update(settings.what == "machine"       ? Json::object()
              : settings.what == "adamw"       ? adamw(settings)
              : settings.what == "offload"     ? offload(settings)
              : settings.what == "checkpoint"  ? checkpoint(settings)
              : settings.what == "collectives" ? collectives(settings)
              : settings.what == "products"    ? products(settings)
                                               : step(settings));
  if (settings.json.empty()) { return; }
  write_output(settings.json, json.dump(2) + "\n");
  fmt::print("results in {}\n", settings.json);
}

}  // namespace tessera::tools

#include "tools/bench/bench_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.hpp"
#include "tools/common/machine.hpp"
#include "tools/common/output_file.hpp"
#include "tools/measure/features.hpp"
#include "tools/options/action_options.hpp"
#include "tools/options/option_values.hpp"
#include "tools/options/option_words.hpp"
#include "tools/options/resharding.hpp"

namespace tessera::tools {
namespace {

using BenchOption = ActionOption<BenchSettings>;

constexpr int kScalingRanks = 1 + 2 + 4 + 8;  // side by side, each job with two ranks' samples

const std::vector<std::string> kBenches = {"adamw",   "offload",  "checkpoint", "collectives",
                                           "machine", "products", "step"};

std::string summary(std::string_view bench) {
  if (bench == "adamw") {
    return "Times one AdamW update against plain loops and a triad over the same arrays.";
  }
  if (bench == "offload") {
    return "Times the same update on the host's stream, as an offloaded optimizer runs it.";
  }
  if (bench == "checkpoint") {
    return "Times saving and loading a GPT's state against plain writes and reads of the same "
           "bytes.";
  }
  if (bench == "collectives") {
    return "Times the collectives of in-process ranks against copies by as many threads.";
  }
  if (bench == "machine") {
    return "Measures the profile of this machine that tessera plan --time takes: --json FILE.";
  }
  if (bench == "products") {
    return "Times the matrix products of a GPT's step in each dtype, by every algorithm of this "
           "build.";
  }
  return "Times training steps of a GPT under each strategy against its matrix products alone.";
}

std::string bench_usage() {
  std::string text =
      "Measures this build on this machine, beside the machine's own limits in the same run.\n\n"
      "usage: tessera bench NAME [options]\n\n";
  for (const std::string& bench : kBenches) {
    text += fmt::format("  {:<13} {}\n", bench, summary(bench));
  }
  return text + "\ntessera bench NAME --help lists the options.\n";
}

template <class T>
auto bench_whole(T bench::StepOptions::* member, std::int64_t most) {
  return [=](BenchSettings& s, const std::string& text) {
    s.step.*member = static_cast<T>(parse_whole(text, 1, most));
  };
}

auto size_of_model(std::int64_t nn::DecoderConfig::* member) {
  return [=](BenchSettings& s, const std::string& text) {
    s.step.model.*member = parse_whole(text, 1, 1'000'000);
  };
}

void set_bench_strategies(BenchSettings& settings, const std::string& text) {
  settings.step.strategies.clear();
  for (const std::string& name : parse_list(text)) {
    settings.step.strategies.push_back(parse_strategy(name));
  }
}

void set_precision(BenchSettings& settings, const std::string& text) {
  if (text != "fp32" && text != "bf16" && text != "fp16") {
    throw ConfigError(fmt::format("'{}' is unknown; use fp32, bf16, fp16", text));
  }
  settings.step.precision = parse_dtype(text);
}

const std::vector<BenchOption>& options() {
  static const std::vector<BenchOption> all = {
      {"--parameters", "N", "50000000", "parameters updated", "adamw offload",
       [](BenchSettings& s, const std::string& text) {
         s.parameters = parse_whole(text, 1, 100'000'000'000);
       }},
      {"--bytes", "N", "67108864", "bytes of the whole tensor on each rank, fp32", "collectives",
       [](BenchSettings& s, const std::string& text) {
         s.bytes = parse_whole(text, 4, 100'000'000'000);
       }},
      {"--widest", "H", "512", "width of the widest model whose kernels are timed", "machine",
       [](BenchSettings& s, const std::string& text) { s.widest = parse_whole(text, 64, 16'384); }},
      {"--from", "FILE", "",
       "make the profile of a GPU from the samples (gpu.json) of scripts/gpu_check.sh", "machine",
       [](BenchSettings& s, const std::string& text) {
         if (text.empty()) { throw ConfigError("is empty; give a path"); }
         s.from = text;
       }},
      {"--layers", "L", "4", "transformer blocks", "step",
       size_of_model(&nn::DecoderConfig::layers)},
      {"--layers", "L", "6", "transformer blocks", "checkpoint",
       size_of_model(&nn::DecoderConfig::layers)},
      {"--hidden", "H", "256", "width", "products step", size_of_model(&nn::DecoderConfig::hidden)},
      {"--hidden", "H", "512", "width", "checkpoint", size_of_model(&nn::DecoderConfig::hidden)},
      {"--heads", "A", "4", "attention heads", "checkpoint step",
       size_of_model(&nn::DecoderConfig::heads)},
      {"--vocab", "V", "1024", "number of different tokens", "checkpoint products step",
       size_of_model(&nn::DecoderConfig::vocab)},
      {"--seq", "T", "128", "tokens in a sample", "checkpoint products step",
       size_of_model(&nn::DecoderConfig::seq)},
      {"--batch", "B", "8", "samples of a rank", "checkpoint products step",
       bench_whole(&bench::StepOptions::batch, 1'000'000)},
      {"--strategies", "S,S", "dp,ddp,zero1,zero2,zero3", "what to time", "step",
       set_bench_strategies},
      {"--precision", "P", "fp32",
       "dtype of parameters and computation: fp32, bf16 or fp16 (16 bits with fp32 master weights)",
       "step", set_precision},
      {"--shard-group", "S", "",
       "ranks that share a copy of the model states under hybrid (default all)", "step",
       [](BenchSettings& s, const std::string& text) {
         s.step.shard_group = static_cast<int>(parse_whole(text, 1, 256));
       }},
      {"--prefetch", "P", "1", "units gathered ahead of the one in use", "step",
       [](BenchSettings& s, const std::string& text) {
         s.step.prefetch = static_cast<int>(parse_whole(text, 0, 1'000));
       }},
      {"--scaling", "", "", "also time 1, 2, 4 and 8 ranks that share the work of two", "step",
       [](BenchSettings& s, const std::string&) { s.scaling = true; }},
      {"--recording", "", "", "also time steps without and with records, in turn", "step",
       [](BenchSettings& s, const std::string&) { s.recording = true; }},
      {"--features", "", "",
       "also time clipping, recomputation, bf16 on the wire, bf16 and fp16, in turn", "step",
       [](BenchSettings& s, const std::string&) { s.features = true; }},
      {"--folder", "DIR", ".", "folder on the disk that is measured", "checkpoint",
       [](BenchSettings& s, const std::string& text) {
         if (text.empty()) { throw ConfigError("is empty; give a folder"); }
         s.folder = text;
       }},
      {"--ranks", "N", "2", "ranks, threads of this process", "collectives step",
       bench_whole(&bench::StepOptions::ranks, 256)},
      {"--repeat", "K", "20", "timed rounds; ours and the limits run in turn in each",
       "adamw offload checkpoint collectives machine products step",
       [](BenchSettings& s, const std::string& text) {
         s.repeat = static_cast<int>(parse_whole(text, 1, 1'000'000));
       }},
      {"--json", "FILE", "", "write the results there",
       "adamw offload checkpoint collectives machine products step",
       [](BenchSettings& s, const std::string& text) {
         if (text.empty()) { throw ConfigError("is empty; give a path"); }
         s.json = text;
       }},
  };
  return all;
}

// Bytes of `models` at the same time. A double, since the request may exceed 64 bits.
double step_bytes(const bench::StepOptions& step, std::size_t models, int ranks, double samples) {
  const nn::DecoderConfig& model = step.model;
  const double row = 22.0 * static_cast<double>(model.hidden) * static_cast<double>(model.layers) +
                     static_cast<double>(model.vocab);
  const double values = 4.0 * ranks * static_cast<double>(model.parameter_elems()) +
                        samples * static_cast<double>(model.seq) * row;
  return sizeof(float) * static_cast<double>(models) * values;
}

void check_memory(const BenchSettings& settings) {
  double need = 20.0 * static_cast<double>(settings.parameters);
  const bench::StepOptions& step = settings.step;
  if (settings.what == "collectives") {
    need = 5.5 * static_cast<double>(settings.bytes) * step.ranks;
  }
  if (settings.what == "products") {
    const auto rows = static_cast<double>(step.batch) * static_cast<double>(step.model.seq);
    const auto narrow = static_cast<double>(step.model.hidden);
    const double wide = std::max(4 * narrow, static_cast<double>(step.model.vocab));
    need = 2 * sizeof(float) * (rows * (narrow + wide) + narrow * wide);
  }
  if (settings.what == "checkpoint") {  // the second part holds a snapshot and two copies of it
    need = step_bytes(step, 1, 1, static_cast<double>(step.batch)) * 2;
  }
  if (settings.what == "step") {
    const auto batch = static_cast<double>(step.batch);
    const std::size_t strategies = step.strategies.size();
    const std::size_t models =
        settings.features ? std::max(strategies, bench::kFeatureSteps) : strategies;
    need = step_bytes(step, models, step.ranks, step.ranks * batch);
    if (settings.scaling) {
      need = std::max(need, step_bytes(step, strategies, kScalingRanks, 8 * batch));
    }
  }
  const auto have = static_cast<double>(usable_memory());
  if (need <= have) { return; }
  throw OutOfMemory(fmt::format(
      "tessera bench {} needs about {:.3g} GiB with these sizes and this machine has {:.3g}; "
      "make them smaller",
      settings.what, need / (1 << 30), have / (1 << 30)));
}

void check_shard_group(const BenchSettings& settings) {
  const bench::StepOptions& step = settings.step;
  if (step.shard_group == 0) { return; }
  const auto hybrid = std::ranges::find(step.strategies, Strategy::hybrid);
  const bool timed = hybrid != step.strategies.end();
  validate({.strategy = timed ? *hybrid : step.strategies.front(), .shard_group = step.shard_group},
           step.ranks);
  if (settings.scaling) {
    throw ConfigError(
        "--shard-group cannot be combined with --scaling, which also times one rank; leave one of "
        "them out");
  }
}

void check_bench(BenchSettings& settings) {
  settings.step.rounds = settings.repeat;
  if (settings.what == "products") {
    settings.step.model.heads = 1;
  }  // no product is split by heads
  settings.step.model.validate();
  if (settings.what == "collectives" &&
      settings.bytes < static_cast<std::int64_t>(sizeof(float)) * settings.step.ranks) {
    throw ConfigError(
        fmt::format("--bytes: {} bytes are less than one element for each of {} ranks",
                    settings.bytes, settings.step.ranks));
  }
  if (settings.scaling && settings.step.batch % 4 != 0) {
    throw ConfigError(
        "--scaling: eight ranks share the batches of two; give a --batch that is a "
        "multiple of 4");
  }
  if (settings.features && settings.step.precision != DType::fp32) {
    throw ConfigError(
        "--features compares with the plain step, which is fp32; leave out --precision");
  }
  if (settings.prefetch_given && std::ranges::none_of(settings.step.strategies, gathers)) {
    require_gathering(settings.step.strategies.front(), field_of("--prefetch"));
  }
  if (!settings.from.empty() && !settings.measuring.empty()) {
    throw ConfigError(
        fmt::format("{} has no effect with --from, which measures nothing: leave it "
                    "out",
                    settings.measuring));
  }
  check_shard_group(settings);
  check_memory(settings);
  if (!settings.json.empty()) { require_writable("--json", settings.json); }
}

}  // namespace

BenchSettings parse_bench(std::span<const char* const> arguments) {
  if (arguments.empty()) {
    throw ConfigError(
        "tessera bench needs a name: adamw, offload, checkpoint, collectives, machine, products or "
        "step");
  }
  const std::string first = arguments.front();
  BenchSettings settings;
  if (first == "--help" || first == "-h") {
    settings.text = bench_usage();
    return settings;
  }
  if (std::ranges::find(kBenches, first) == kBenches.end()) {
    refuse_action("tessera bench", kBenches, first);
  }
  const std::string command = "tessera bench " + first;
  const auto known = options_of(options(), first);
  const Arguments typed = split_arguments(command, names_of(known), arguments.subspan(1));
  if (typed.help) {
    settings.text =
        fmt::format("{}\n\nusage: {} [options]\n\n{}", summary(first), command, help_on(known));
    return settings;
  }
  if (!typed.rest.empty()) { refuse_option(command, known, typed.rest.front()); }
  settings.what = first;
  for (const std::string_view measuring : {"--repeat", "--widest"}) {
    if (typed.has(measuring)) { settings.measuring = measuring; }
  }
  settings.prefetch_given = typed.has("--prefetch");
  apply_options(options(), first, typed, settings);
  check_bench(settings);
  return settings;
}

}  // namespace tessera::tools

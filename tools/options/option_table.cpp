#include "tools/options/option_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tools/options/arguments.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

constexpr std::string_view kBoth = "train compare";
constexpr std::string_view kAll = "train compare plan scale";
constexpr std::string_view kOneTraining = "train compare plan";
constexpr std::string_view kOneModel = "train compare plan sample";
constexpr std::string_view kPlanned = "plan scale";
constexpr std::string_view kEvery = "train compare plan scale sample";
constexpr std::string_view kSample = "sample";
constexpr std::string_view kRun = "train compare sample";

constexpr std::int64_t kMostRanks = 65'536;  // per job; threads may be fewer (settle)
constexpr std::int64_t kMostPlannedRanks = std::int64_t{1} << 20;
constexpr std::int64_t kMostParameters = std::int64_t{1} << 50;  // the limit of ShardedModel
constexpr std::int64_t kMostLayers = 65'536;                     // the limit of DecoderConfig

/// A member of the settings, or of a struct in them.
template <auto... Path>
auto& member(Settings& settings) {
  return (settings.*....*Path);
}

template <class Value>
struct Held {
  using Type = Value;
};
template <class Value>
struct Held<std::optional<Value>> {
  using Type = Value;
};
/// The type of that member, or of the value that it may lack.
template <auto... Path>
using MemberType = typename Held<
    std::remove_reference_t<decltype(member<Path...>(std::declval<Settings&>()))>>::Type;

/// Stores an integer in [least, most] in a member.
template <auto... Path>
Apply whole(std::int64_t least, std::int64_t most) {
  return [=](Settings& settings, const std::string& text) {
    member<Path...>(settings) = static_cast<MemberType<Path...>>(parse_whole(text, least, most));
  };
}

/// Stores any integer that the member can hold; the library checks the range.
template <auto... Path>
Apply integer() {
  using Limits = std::numeric_limits<MemberType<Path...>>;
  return whole<Path...>(Limits::min(), Limits::max());
}

template <auto Member>
Apply size(std::int64_t most) {
  return whole<Member>(1, most);
}

template <auto... Path>
Apply number(NumberRange range) {
  return [=](Settings& settings, const std::string& text) {
    member<Path...>(settings) = parse_number(text, range);
  };
}

constexpr NumberRange kFinite{.least = std::numeric_limits<float>::lowest()};

/// Stores any finite number; the library checks the range.
template <auto... Path>
Apply finite() {
  return number<Path...>(kFinite);
}

/// Sets a switch's member.
template <auto... Path>
Apply on() {
  return [](Settings& settings, const std::string& /*given*/) { member<Path...>(settings) = true; };
}

/// Stores what `parse`, a function of the library, makes of the text.
template <auto... Path>
Apply parsed(MemberType<Path...> (*parse)(std::string_view)) {
  return
      [=](Settings& settings, const std::string& text) { member<Path...>(settings) = parse(text); };
}

template <auto... Path>
Apply path() {
  return [](Settings& settings, const std::string& text) {
    if (text.empty()) { throw ConfigError("is empty; give a path"); }
    member<Path...>(settings) = text;
  };
}

template <auto Member>
Apply text(std::string_view what) {
  return [=](Settings& settings, const std::string& given) {
    if (given.empty()) { throw ConfigError(fmt::format("is empty; give {}", what)); }
    settings.*Member = given;
  };
}

void set_strategies(Settings& settings, const std::string& text) {
  settings.strategies.clear();
  for (const std::string& name : parse_list(text)) {
    const Strategy strategy = parse_strategy(name);
    const auto& have = settings.strategies;
    if (std::find(have.begin(), have.end(), strategy) != have.end()) {
      throw ConfigError(fmt::format("{} is named twice", to_string(strategy)));
    }
    settings.strategies.push_back(strategy);
  }
}

void set_rank_counts(Settings& settings, const std::string& text) {
  settings.rank_counts.clear();
  for (const std::string& entry : parse_list(text)) {
    const auto ranks = static_cast<int>(parse_whole(entry, 1, kMostPlannedRanks));
    auto& have = settings.rank_counts;
    if (std::find(have.begin(), have.end(), ranks) != have.end()) {
      throw ConfigError(fmt::format("{} is named twice", ranks));
    }
    have.push_back(ranks);
  }
}

void set_offload(Settings& settings, const std::string& text) {
  settings.boundaries = nn::Boundaries::device;
  settings.sharded.offload = Offload::none;
  if (text == "none") { return; }
  std::vector<std::string> have;
  for (const std::string& entry : parse_list(text)) {
    if (entry == "none") { throw ConfigError("none stands alone; leave it or the rest out"); }
    if (std::find(have.begin(), have.end(), entry) != have.end()) {
      throw ConfigError(fmt::format("{} is named twice", entry));
    }
    have.push_back(entry);
    if (entry == "activations") {
      settings.boundaries = nn::Boundaries::host;
      continue;
    }
    if (entry != "optimizer" && entry != "state") {
      throw ConfigError(
          fmt::format("'{}' is unknown; use none, optimizer, state, activations, "
                      "optimizer,activations or state,activations",
                      entry));
    }
    if (settings.sharded.offload != Offload::none) {
      throw ConfigError(
          "optimizer and state exclude each other: the update runs on the host, or on the device");
    }
    settings.sharded.offload = entry == "state" ? Offload::state : Offload::optimizer;
  }
}

void set_mesh(Settings& settings, const std::string& text) {
  settings.sharded.mesh = parse_mesh(text);
}

void set_prompt_tokens(Settings& settings, const std::string& text) {
  settings.prompt_tokens.clear();
  for (const std::string& entry : parse_list(text)) {
    settings.prompt_tokens.push_back(
        static_cast<std::int32_t>(parse_whole(entry, 0, std::numeric_limits<std::int32_t>::max())));
  }
}

void set_schedule(Settings& settings, const std::string& text) {
  if (text != "cosine" && text != "constant") {
    throw ConfigError(fmt::format("'{}' is unknown; use cosine or constant", text));
  }
  settings.lr_schedule = text == "cosine" ? ScheduleShape::cosine : ScheduleShape::constant;
}

void set_token_format(Settings& settings, const std::string& text) {
  const std::map<std::string, TokenFormat> formats = {{"detect", TokenFormat::detect},
                                                      {"uint16", TokenFormat::uint16},
                                                      {"uint32", TokenFormat::uint32}};
  const auto found = formats.find(text);
  if (found == formats.end()) {
    throw ConfigError(fmt::format("'{}' is unknown; use detect, uint16 or uint32", text));
  }
  settings.token_format = found->second;
}

void set_channel_priority(Settings& settings, const std::string& text) {
  if (text != "usual" && text != "high") {
    throw ConfigError(fmt::format("'{}' is unknown; use usual or high", text));
  }
  settings.world.tuning.channel_priority =
      text == "high" ? StreamPriority::high : StreamPriority::usual;
}

void set_comm(Settings& settings, const std::string& text) {
  static const std::map<std::string, CommChoice> choices = {{"auto", CommChoice::automatic},
                                                            {"local", CommChoice::local},
                                                            {"mpi", CommChoice::mpi},
                                                            {"nccl", CommChoice::nccl}};
  const auto choice = choices.find(text);
  if (choice == choices.end()) {
    throw ConfigError(fmt::format("'{}' is unknown; use auto, local, mpi or nccl", text));
  }
  settings.comm = choice->second;
}

void set_device(Settings& settings, const std::string& text) {
  if (text == "meta") {
    throw ConfigError("meta only counts, as tessera plan does; use cpu or cuda");
  }
  if (text != "cpu" && text != "cuda") {
    throw ConfigError(fmt::format("'{}' is unknown; use cpu or cuda", text));
  }
  settings.world.device = text == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
}

void set_deadline(Settings& settings, const std::string& text) {
  constexpr double ms_a_second = 1000;
  const float seconds = parse_number(text, {.least_allowed = false, .below = 1e7});
  settings.world.deadline =
      std::chrono::milliseconds{std::max(std::llround(seconds * ms_a_second), 1LL)};
}

void set_budget(Settings& settings, const std::string& text) {
  const std::size_t bytes = parse_bytes(text);
  if (bytes == 0) { throw ConfigError("nothing fits in 0 bytes; give a size such as 24GiB"); }
  settings.world.budget_bytes = bytes;
}

template <auto... Path>
Apply dtype(const std::vector<std::string_view>& known) {
  return [=](Settings& settings, const std::string& text) {
    if (std::find(known.begin(), known.end(), text) == known.end()) {
      throw ConfigError(fmt::format("'{}' is unknown; use {}", text, fmt::join(known, ", ")));
    }
    member<Path...>(settings) = parse_dtype(text);
  };
}

void set_loss_scale(Settings& settings, const std::string& text) {
  LossScaling scaling;
  if (text == "dynamic" || text == "off") {
    scaling.mode = text == "dynamic" ? LossScaleMode::dynamic : LossScaleMode::off;
  } else if (std::isalpha(static_cast<unsigned char>(text.empty() ? '?' : text.front())) != 0) {
    throw ConfigError(fmt::format("'{}' is unknown; use dynamic, off or a number", text));
  } else {
    scaling.mode = LossScaleMode::fixed;
    scaling.initial = parse_number(text, kFinite);
  }
  settings.sharded.loss_scaling = scaling;
}

nn::Recompute recompute_of(const std::string& entry) {
  constexpr std::string_view every = "every:";
  if (entry == "none") { throw ConfigError("none stands alone; leave it or the rest out"); }
  if (entry == "gelu") { return nn::Recompute::gelu(); }
  if (entry == "swiglu") { return nn::Recompute::swiglu(); }
  if (entry == "layer-norm") { return nn::Recompute::layer_norm(); }
  if (entry == "rms-norm") { return nn::Recompute::rms_norm(); }
  if (entry == "block") { return nn::Recompute::block(); }
  if (entry.starts_with(every)) {
    return nn::Recompute::every(parse_whole(entry.substr(every.size()), 1, kMostLayers));
  }
  throw ConfigError(fmt::format(
      "'{}' is unknown; use none, or gelu or swiglu, layer-norm or rms-norm, and block or every:K, "
      "with commas between",
      entry));
}

void set_recompute(Settings& settings, const std::string& text) {
  settings.recompute = {};
  if (text == "none") { return; }
  std::vector<std::string> have;
  std::string whole;  // layers
  for (const std::string& entry : parse_list(text)) {
    if (std::find(have.begin(), have.end(), entry) != have.end()) {
      throw ConfigError(fmt::format("{} is named twice", entry));
    }
    have.push_back(entry);
    const nn::Recompute recompute = recompute_of(entry);
    if (recompute.applies_to(0)) {
      if (!whole.empty()) {
        throw ConfigError(
            fmt::format("{} and {} both choose layers; give one of them", whole, entry));
      }
      whole = entry;
    }
    settings.recompute = settings.recompute | recompute;
  }
  if (have.size() > 1 && (whole == "block" || whole == "every:1")) {
    throw ConfigError(fmt::format(
        "{} recomputes every layer whole, so that nothing is left for {}; leave one of them out",
        whole, have[0] == whole ? have[1] : have[0]));
  }
}

void set_shard_size(Settings& settings, const std::string& text) {
  settings.shard_bytes = parse_bytes(text);
  if (settings.shard_bytes == 0) {
    throw ConfigError("no tensor fits in 0 bytes; give a size such as 5GiB");
  }
}

void set_resume_moments(Settings& settings, const std::string& text) {
  if (text != "convert") { throw ConfigError(fmt::format("'{}' is unknown; use convert", text)); }
  settings.convert_moments = true;
}

std::vector<OptionRow> model_rows() {
  const Apply set_model = [](Settings& s, const std::string& text) {
    s.model = text;
    std::error_code ignored;
    const auto& names = nn::DecoderConfig::preset_names();
    const bool is_name = std::ranges::find(names, text) != names.end();
    if (!is_name && std::filesystem::is_directory(text, ignored)) {
      s.hub = nn::read_hub_config(text);
    }
  };
  return {
      {"--model", "model", "NAME", "",
       "gpt-nano (default), gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama2-7b, llama3-8b, "
       "llama3-70b, mistral-7b or qwen3-0.6b to -32b, perhaps with a shorter --seq; or a folder "
       "with config.json and weights as transformers writes them; or give sizes:",
       kOneModel, set_model},
      {"--layers", "model", "L", "", "transformer blocks (default 4)", kOneModel,
       size<&Settings::layers>(kMostLayers)},
      {"--hidden", "model", "H", "", "width (default 128)", kOneModel,
       size<&Settings::hidden>(1'000'000)},
      {"--heads", "model", "A", "", "attention heads, a divisor of the width (default 4)",
       kOneModel, size<&Settings::heads>(1'000'000)},
      {"--vocab", "model", "V", "", "number of different tokens (default 256)", kOneModel,
       size<&Settings::vocab>(std::numeric_limits<std::int32_t>::max())},
      {"--seq", "model", "T", "", "tokens in a sample (default 128)", kOneModel,
       size<&Settings::seq>(100'000'000)},
      {"--init", "model", "PATH", "",
       "start from these weights (safetensors: a file, an index or a folder; GPT-2's names)", kBoth,
       path<&Settings::init>()},
      {"--init", "model", "PATH", "",
       "the weights (safetensors: a file, an index or a folder; GPT-2's names)", kSample,
       path<&Settings::init>()},
      {"--model", "model", "NAME", "",
       "models of the parts of gpt2 (default; with --measure gpt-nano), of another model that "
       "tessera plan --model takes by name, or of that in a folder with config.json, in any size; "
       "with its vocabulary and sequence length, or:",
       "scale", set_model},
      {"--vocab", "model", "V", "", "number of different tokens", "scale",
       size<&Settings::vocab>(std::numeric_limits<std::int32_t>::max())},
      {"--seq", "model", "T", "", "tokens in a sample", "scale", size<&Settings::seq>(100'000'000)},
      {"--aspect", "model", "A", "",
       "width for each layer: hidden = A layers, rounded to whole heads (default: as in the named "
       "model; gpt2 64)",
       "scale", size<&Settings::aspect>(1'024)},
      {"--params", "model", "N", "",
       "or plan N parameters, such as 7.5e9, in 64 equal units: only model states and slots",
       "plan",
       [](Settings& s, const std::string& text) { s.params = parse_count(text, kMostParameters); }},
  };
}

std::vector<OptionRow> data_rows() {
  return {
      {"--data", "data", "PATH", "", "a file, or a folder of text files in name order, as bytes",
       kBoth, path<&Settings::data>()},
      {"--tokens", "data", "FILE", "",
       "a file of tokens: plain uint16, llm.c's with its header (uint16 or uint32), or .npy", kBoth,
       path<&Settings::tokens>()},
      {"--token-format", "data", "F", "detect",
       "detect (refuses files that do not look like tokens), or uint16 or uint32 without a header",
       kBoth, set_token_format, "token_format"},
      {"--pack", "data", "TOKEN|FILE", "",
       "attention, positions and the loss end at documents: TOKEN ends each of them, or FILE (.npy "
       "of integers) has the position of each one's first token",
       kOneTraining, path<&Settings::pack>()},
      {"--loss-mask", "data", "FILE", "",
       "a byte for each token: 1 if the loss counts it as a target, else 0", kOneTraining,
       path<&Settings::loss_mask>()},
      {"--eval-data", "data", "PATH", "",
       "held-out data in the same format; its loss, without dropout, is logged as eval_loss",
       "train", path<&Settings::eval_data>()},
      {"--eval-every", "data", "K", "100", "steps between evaluations; one more at the end",
       "train", whole<&Settings::eval_every>(1, 1'000'000'000'000)},
      {"--eval-batches", "data", "M", "10", "micro-batches per rank of an evaluation, at most",
       "train", whole<&Settings::eval_batches>(1, 1'000'000)},
      {"--eval-pack", "data", "FILE", "", "--pack of --eval-data, if --pack is a file", "train",
       path<&Settings::eval_pack>()},
      {"--eval-loss-mask", "data", "FILE", "", "--loss-mask of --eval-data", "train",
       path<&Settings::eval_loss_mask>()},
      {"--no-shuffle", "data", "", "", "take samples in the order of the data", kBoth,
       [](Settings& s, const std::string&) { s.shuffle = false; }},
  };
}

std::vector<OptionRow> parallel_rows() {
  return {
      {"--ranks", "parallel", "N", "",
       "number of ranks (default 1; in a job of mpirun or srun its number of processes)", kRun,
       whole<&Settings::ranks>(1, kMostRanks)},
      {"--ranks", "parallel", "N", "1", "ranks", "plan",
       whole<&Settings::ranks>(1, kMostPlannedRanks)},
      {"--ranks", "parallel", "N,N", "1,2,4,8,64,1024",
       "numbers of ranks, multiples of the ranks of --mesh; the default ones are raised to "
       "multiples",
       "scale", set_rank_counts},
      {"--strategy", "parallel", "S", "ddp",
       "dp, ddp, zero1, zero2, zero3 (alias fsdp) or hybrid (zero3 within shard groups, replicas "
       "across them)",
       "train sample", parsed<&Settings::sharded, &ModelOptions::strategy>(parse_strategy)},
      {"--strategies", "parallel", "S,S", "dp,ddp,zero1,zero2,zero3",
       "strategies to compare; hybrid too, with its default --shard-group", "compare",
       set_strategies},
      {"--strategies", "parallel", "S,S", "dp,ddp,zero1,zero2,zero3",
       "strategies to scale; hybrid too, with its default --shard-group", "scale", set_strategies},
      {"--strategies", "parallel", "S,S", "",
       "strategies to plan (default dp,ddp,zero1,zero2,zero3; with --budget the cheapest that "
       "fits); hybrid too, with its default --shard-group",
       "plan", set_strategies},
      {"--strategy", "parallel", "S", "", "the same for one strategy", "plan",
       [](Settings& s, const std::string& text) { s.strategies = {parse_strategy(text)}; }},
      {"--shard-group", "parallel", "S", "",
       "under hybrid, neighbouring ranks that share one copy of the model states; a divisor of "
       "--ranks (default: the ranks of a machine)",
       kRun, whole<&Settings::sharded, &ModelOptions::shard_group>(1, kMostRanks), "shard_group"},
      {"--shard-group", "parallel", "S", "",
       "under hybrid, neighbouring ranks that share one copy of the model states; a divisor of "
       "--ranks",
       kPlanned, whole<&Settings::sharded, &ModelOptions::shard_group>(1, kMostPlannedRanks)},
      {"--mesh", "parallel", "D=N,D=N", "",
       "ranks along pipe (each has some of the layers), replicate, shard (among which zero1, "
       "zero2, zero3 and hybrid shard) and tensor (each has a part of every layer); neighbouring "
       "ranks differ along the last dimension first. Example: pipe=2,shard=4,tensor=2. Under "
       "hybrid --shard-group S is short for replicate=N/S,shard=S",
       kOneTraining, set_mesh},
      {"--mesh", "parallel", "D=N,D=N", "",
       "ranks along pipe and tensor, such as pipe=2,tensor=4; the remaining factor of each number "
       "of ranks is along shard, or under ddp along replicate",
       "scale", set_mesh},
      {"--schedule", "parallel", "S", "1f1b",
       "schedule of micro-batches along pipe: gpipe, 1f1b, interleaved or zero-bubble", kAll,
       [](Settings& s, const std::string& text) { s.pipe_schedule = parse_pipe_schedule(text); }},
      {"--chunks", "parallel", "K", "2", "stages per rank with --schedule interleaved", kAll,
       whole<&Settings::chunks>(2, 65'536)},
      {"--sequence-parallel", "parallel", "", "",
       "along tensor, compute norms and dropout on slices of the sequence: less memory, the same "
       "communication",
       kAll, on<&Settings::sequence_parallel>(), "sequence_parallel"},
      {"--tensor-slices", "parallel", "K", "1",
       "slices of a layer's product along tensor; communication of one overlaps with the product "
       "of the next",
       kAll, whole<&Settings::tensor_slices>(1, 1'024), "tensor_slices"},
      {"--prefetch", "parallel", "P", "1", "units gathered ahead of the one in use", kEvery,
       integer<&Settings::sharded, &ModelOptions::prefetch>(), "prefetch"},
      {"--prefetch-backward", "parallel", "P", "",
       "units gathered ahead in backward passes (default --prefetch)", kOneTraining,
       integer<&Settings::sharded, &ModelOptions::tuning, &ModelTuning::prefetch_backward>(),
       "tuning.prefetch_backward"},
      {"--reshard", "parallel", "WHEN", "after-forward",
       "when zero3 and hybrid release gathered blocks: after-forward, or after-backward (more "
       "memory, one gather instead of two)",
       kOneTraining, parsed<&Settings::sharded, &ModelOptions::reshard>(parse_reshard), "reshard"},
      {"--persist", "parallel", "ELEMS", "0",
       "under zero3 and hybrid, units of at most ELEMS elements stay gathered until the next "
       "update",
       kOneTraining, integer<&Settings::sharded, &ModelOptions::persist_elems>(), "persist_elems"},
      {"--device", "parallel", "D", "cpu",
       "device of the ranks: cpu or cuda (ranks that are threads take the GPUs in turn)", kRun,
       set_device, "device"},
      {"--comm", "parallel", "C", "auto",
       "local (ranks are threads), mpi or nccl (this process is one rank of a launcher's job, on "
       "cpu or cuda), or auto: the device's in a launcher's job, else local",
       kRun, set_comm},
      {"--comm", "parallel", "C", "auto",
       "local (ranks are threads), mpi or nccl (ranks are processes, on cpu or cuda), or auto: "
       "processes for more than 256 ranks",
       kPlanned, set_comm},
      {"--device", "parallel", "D", "cpu", "device to plan for: cpu or cuda", "plan", set_device},
      {"--device", "parallel", "D", "cpu",
       "device to plan for and to train on with --measure: cpu or cuda", "scale", set_device},
      {"--for", "parallel", "D", "", "another name of --device; plans need no GPU", kPlanned,
       set_device},
      {"--graph", "parallel", "", "",
       "on cuda, launch each step from the third on as one CUDA graph: the same results, shorter "
       "gaps between kernels",
       kBoth, on<&Settings::graph>()},
      {"--deterministic", "parallel", "", "",
       "make nccl deterministic too, by its ring algorithm; everything else always is", kBoth,
       on<&Settings::world, &WorldOptions::deterministic>(), "deterministic"},
      {"--products", "parallel", "PATH", "",
       "on cuda, a file of cuBLASLt algorithms recorded by tessera_cuda_bench --choose (default: "
       "the first choice of cuBLASLt's heuristic)",
       kBoth, path<&Settings::world, &WorldOptions::products>(), "products"},
      {"--channel-priority", "parallel", "P", "usual",
       "on cuda, the priority of the gather and reduce streams: usual, or high (their thread "
       "blocks are scheduled before those of kernels)",
       kBoth, set_channel_priority, "tuning.channel_priority"},
      {"--spare-multiprocessors", "parallel", "N", "0",
       "on cuda, multiprocessors that matrix products leave to collectives beside them", kBoth,
       integer<&Settings::world, &WorldOptions::tuning, &WorldTuning::spared_multiprocessors>(),
       "tuning.spared_multiprocessors"},
      {"--nccl-min-ctas", "parallel", "N", "0",
       "with nccl, fewest thread blocks of a collective (1 to 64; 0: NCCL's choice)", kBoth,
       integer<&Settings::world, &WorldOptions::nccl, &NcclOptions::min_ctas>(), "nccl.min_ctas"},
      {"--nccl-max-ctas", "parallel", "N", "0",
       "with nccl, most thread blocks of a collective (1 to 64; 0: NCCL's choice)", kBoth,
       integer<&Settings::world, &WorldOptions::nccl, &NcclOptions::max_ctas>(), "nccl.max_ctas"},
      {"--nccl-windows", "parallel", "", "",
       "with nccl 2.27 and newer, register arenas as symmetric windows", kBoth,
       on<&Settings::world, &WorldOptions::nccl, &NcclOptions::windows>(), "nccl.windows"},
      {"--nondeterministic-attention", "parallel", "", "",
       "on cuda, let cuDNN add gradients of 16-bit attention in any order: faster, but runs and "
       "strategies differ in their last bits",
       kAll, on<&Settings::world, &WorldOptions::nondeterministic_attention>(),
       "nondeterministic_attention"},
      {"--deadline", "parallel", "SECONDS", "300",
       "a collective that a rank has not called by then ends the run and names the missing ranks",
       kRun, set_deadline, "deadline"},
      {"--threads", "parallel", "N", "1",
       "compute threads per rank; ranks times threads should not exceed the cores", kEvery,
       integer<&Settings::world, &WorldOptions::threads>(), "threads"},
      {"--host-threads", "parallel", "N", "",
       "host threads with which a rank on cuda updates offloaded state (default: its share of the "
       "machine's cores)",
       kBoth, integer<&Settings::world, &WorldOptions::host_threads>(), "host_threads"},
      {"--budget", "parallel", "SIZE", "",
       "most memory of a rank: 24GiB, 80GB, bytes; a run that is planned to need more does not "
       "start",
       kRun, set_budget, "budget_bytes"},
      {"--budget", "parallel", "SIZE", "",
       "most memory of a rank: 24GiB, 80GB, bytes. Without strategies: finds the cheapest "
       "strategy, micro-batch, accumulation with its mode, and prefetch that fit, for the same "
       "global batch. Where nothing fits, it also tries --head-rows, --recompute, --mesh with "
       "--schedule, and --offload state or optimizer, in this order. A typed option stays (of "
       "--batch and --accumulate their product), and --shard-group rules out a --mesh",
       "plan", set_budget},
      {"--budget", "parallel", "SIZE", "",
       "most memory of a rank: 24GiB, 80GB, bytes (default 24GiB; with --measure 64MiB, or 1GiB "
       "for gpt2)",
       "scale", set_budget},
  };
}

std::vector<OptionRow> training_rows() {
  constexpr std::int64_t most = 1'000'000;
  constexpr std::int64_t most_steps = 1'000'000'000'000;
  return {
      {"--steps", "training", "K", "100",
       "optimizer steps, counted from the start of the run; 0 only saves the initial state",
       "train", whole<&Settings::steps>(0, most_steps)},
      {"--steps", "training", "K", "20", "optimizer steps of each strategy", "compare",
       whole<&Settings::steps>(1, most_steps)},
      {"--batch", "training", "B", "4",
       "samples per rank in a micro-batch; ranks along tensor and pipe share them", kAll,
       whole<&Settings::batch>(1, most)},
      {"--accumulate", "training", "A", "1", "micro-batches per step", kAll,
       whole<&Settings::sharded, &ModelOptions::accumulate>(1, most), "accumulate"},
      {"--accumulate-mode", "training", "M", "automatic",
       "when gradients are reduced: every (after each micro-batch), deferred (after the last one), "
       "or automatic (every for zero2, zero3 and hybrid; deferred along pipe)",
       kAll, parsed<&Settings::sharded, &ModelOptions::accumulate_mode>(parse_accumulate_mode),
       "accumulate_mode"},
      {"--lr", "training", "X", "3e-4", "highest learning rate", kBoth, finite<&Settings::lr>(),
       "lr"},
      {"--min-lr", "training", "X", "",
       "learning rate at the end of the cosine (default a tenth of --lr)", kBoth,
       number<&Settings::min_lr>({})},
      {"--warmup", "training", "K", "0", "steps of linear warm-up", kBoth,
       whole<&Settings::warmup>(0, most_steps)},
      {"--lr-schedule", "training", "S", "cosine", "cosine or constant", kBoth, set_schedule},
      {"--optimizer", "training", "O", "adamw", "adamw, adam, sgd or lion", kAll,
       parsed<&Settings::optimizer>(parse_update_rule)},
      {"--moments", "training", "P", "fp32",
       "dtype of the optimizer's moments: fp32, bf16 (half the memory) or int8 (a quarter)", kAll,
       parsed<&Settings::update, &OptimizerOptions::moments>(parse_moment_format), "moments"},
      {"--rounding", "training", "R", "nearest",
       "rounding of 16-bit parameters and moments: nearest or stochastic", kAll,
       parsed<&Settings::update, &OptimizerOptions::rounding>(parse_rounding), "rounding"},
      {"--momentum", "training", "X", "0.9", "momentum of sgd; 0: none, and no state", kAll,
       finite<&Settings::momentum>(), "momentum"},
      {"--beta1", "training", "X", "0.9", "first beta of adamw, adam and lion", kBoth,
       finite<&Settings::beta1>(), "beta1"},
      {"--beta2", "training", "X", "0.95",
       "second beta (if not given: 0.999 for adam, 0.99 for lion)", kBoth,
       finite<&Settings::beta2>(), "beta2"},
      {"--eps", "training", "X", "1e-8", "epsilon of adamw and adam", kBoth,
       finite<&Settings::eps>(), "eps"},
      {"--weight-decay", "training", "X", "0.1",
       "weight decay of tensors with two or more dimensions (if not given: 0 for adam, sgd and "
       "lion)",
       kBoth, finite<&Settings::weight_decay>(), "weight_decay"},
      {"--clip", "training", "X", "1", "largest global gradient norm; 0 turns clipping off", kBoth,
       finite<&Settings::update, &OptimizerOptions::clip_norm>(), "clip_norm"},
      {"--seed", "training", "N", "1", "seed of initial weights, sample order and dropout masks",
       kBoth, whole<&Settings::seed>(0, std::numeric_limits<std::int64_t>::max())},
      {"--precision", "sampling", "P", "fp32",
       "dtype of parameters and computation: fp32, bf16 or fp16", kSample,
       dtype<&Settings::sharded, &ModelOptions::compute>({"fp32", "bf16", "fp16"}), "compute"},
      {"--precision", "training", "P", "fp32",
       "dtype of parameters and computation: fp32, bf16 or fp16 (16 bits with fp32 master weights)",
       kAll, dtype<&Settings::sharded, &ModelOptions::compute>({"fp32", "bf16", "fp16"})},
      {"--master-weights", "training", "M", "fp32",
       "storage of master weights of bf16 parameters: fp32 (4 bytes each) or remainder (2 bytes: "
       "the lower half; the parameter holds the upper); results are equal",
       kAll, parsed<&Settings::sharded, &ModelOptions::master_weights>(parse_master_weights),
       "master_weights"},
      {"--gradient-dtype", "training", "P", "fp32", "dtype of gradients: fp32, bf16 or fp16", kAll,
       dtype<&Settings::sharded, &ModelOptions::gradient>({"fp32", "bf16", "fp16"}), "gradient"},
      {"--norm-dtype", "training", "P", "",
       "dtype of the norms' weights and biases: fp32, bf16 or fp16 (default --precision)", kAll,
       dtype<&Settings::norm_dtype>({"fp32", "bf16", "fp16"})},
      {"--reduce-dtype", "training", "P", "fp32", "dtype of gradients in collectives: fp32 or bf16",
       kAll, dtype<&Settings::sharded, &ModelOptions::reduce>({"fp32", "bf16"}), "reduce"},
      {"--loss-scale", "training", "S", "",
       "scale of the loss: dynamic, off, or a fixed number (default dynamic if --precision or "
       "--gradient-dtype is fp16, else off)",
       kBoth, set_loss_scale, "loss_scaling loss_scaling.initial"},
      {"--max-skips", "training", "K", "25",
       "end the run after K skipped steps in a row (gradients that are not finite); 0: never",
       kBoth, integer<&Settings::sharded, &ModelOptions::max_skips>(), "max_skips"},
      {"--recompute", "training", "R", "none",
       "activations to recompute in backward: none, gelu or swiglu (the activation's output), "
       "layer-norm or rms-norm (both norms' outputs), block (every layer; only its input is kept) "
       "or every:K (every K-th layer); combine with commas: gelu,layer-norm",
       kAll, set_recompute},
      {"--head-rows", "training", "N", "0",
       "compute head, loss and their gradients for N rows of logits at a time, in backward, to "
       "hold only these rows; 0: all rows at once",
       kAll, whole<&Settings::head_rows>(0, std::int64_t{1} << 30)},
      {"--offload", "training", "O", "none",
       "what to move to host memory: none, optimizer (its state; the host updates), state (the "
       "same state; the device fetches and updates it), activations (the layers' inputs until "
       "backward), or optimizer,activations or state,activations",
       kAll, set_offload, "offload"},
      {"--offload-keep", "training", "F", "0",
       "share of the optimizer's state that stays on the device with --offload optimizer or state, "
       "from 0 to below 1: whole units, the last first",
       kAll, finite<&Settings::sharded, &ModelOptions::offload_keep>(), "offload_keep"},
      {"--dropout", "training", "P", "0",
       "dropout probability of the embedding, of attention and of the layers' outputs to the "
       "residual stream",
       kAll, number<&Settings::dropout>({.below = 1})},
  };
}

std::vector<OptionRow> sampling_rows() {
  constexpr std::int64_t most = 1'000'000'000;
  return {
      {"--prompt", "sampling", "TEXT", "", "text that a sample continues (default a newline)",
       kSample, text<&Settings::prompt>("a text, or leave it out to begin with a newline")},
      {"--prompt-file", "sampling", "FILE", "", "the same from a file", kSample,
       path<&Settings::prompt_file>()},
      {"--prompt-tokens", "sampling", "N,N", "",
       "the same as token numbers, for models whose tokens are not bytes; prints numbers", kSample,
       set_prompt_tokens},
      {"--count", "sampling", "TOKENS", "200", "tokens to generate per sample", kSample,
       whole<&Settings::count>(1, most)},
      {"--samples", "sampling", "K", "1", "number of samples; the ranks share them out", kSample,
       whole<&Settings::samples>(1, most)},
      {"--temperature", "sampling", "T", "1",
       "sampling temperature: above 1 more random, below 1 less; 0: always the most likely token",
       kSample, finite<&Settings::temperature>(), "temperature"},
      {"--top-k", "sampling", "K", "0", "sample from the K most likely tokens; 0: all", kSample,
       integer<&Settings::top_k>(), "top_k"},
      {"--top-p", "sampling", "P", "1",
       "sample from the most likely tokens with total probability P", kSample,
       finite<&Settings::top_p>(), "top_p"},
      {"--seed", "sampling", "N", "1", "seed of the samples", kSample,
       whole<&Settings::seed>(0, std::numeric_limits<std::int64_t>::max())},
  };
}

std::vector<OptionRow> checkpoint_rows() {
  constexpr std::int64_t most_steps = 1'000'000'000'000;
  constexpr std::int64_t most_minutes = 1'000'000;
  return {
      {"--checkpoint", "checkpoints", "DIR", "",
       "save the whole training state to DIR/step-N at the end, or when a signal ends the run; "
       "DIR/model.safetensors holds the newest weights",
       "train", path<&Settings::checkpoint>()},
      {"--checkpoint", "checkpoints", "DIR", "", "count the host memory of saves; writes nothing",
       "plan", path<&Settings::checkpoint>()},
      {"--checkpoint-every", "checkpoints", "K", "", "also save after every K steps", "train plan",
       whole<&Settings::checkpoint_every>(1, most_steps)},
      {"--checkpoint-minutes", "checkpoints", "M", "", "also save every M minutes", "train plan",
       whole<&Settings::checkpoint_minutes>(1, most_minutes)},
      {"--checkpoint-sync", "checkpoints", "", "",
       "make steps wait until files are written; by default they are written during later steps, "
       "from a copy in host memory",
       "train plan", on<&Settings::checkpoint_sync>()},
      {"--checkpoint-keep", "checkpoints", "K", "2", "newest checkpoints to keep; 0: all", "train",
       whole<&Settings::checkpoint_keep>(0, 1'000'000)},
      {"--checkpoint-keep-every", "checkpoints", "M", "",
       "also keep the checkpoints of every M-th step", "train",
       whole<&Settings::checkpoint_keep_every>(1, most_steps)},
      {"--shard-size", "checkpoints", "SIZE", "5GiB",
       "most bytes of tensors in one file of a checkpoint; larger sets get several files and an "
       "index",
       "train", set_shard_size},
      {"--resume", "checkpoints", "", "",
       "resume from the newest checkpoint of --checkpoint DIR and train up to step --steps",
       "train", on<&Settings::resume>()},
      {"--resume-from", "checkpoints", "PATH", "",
       "resume from PATH: a checkpoint, or the newest one of another run's folder", "train",
       path<&Settings::resume_from>()},
      {"--resume-moments", "checkpoints", "convert", "",
       "convert the optimizer's moments if the checkpoint has them in another format than "
       "--moments",
       "train", set_resume_moments, "convert_moments"},
  };
}

std::vector<OptionRow> output_rows() {
  return {
      {"--log", "output", "FILE", "", "write one JSON object per step", "train",
       path<&Settings::log>()},
      {"--json", "output", "FILE", "", "write the comparison as JSON", "compare",
       path<&Settings::json>()},
      {"--json", "output", "FILE", "", "write the samples as JSON", kSample,
       path<&Settings::json>()},
      {"--json", "output", "FILE", "", "write the plan as JSON", "plan", path<&Settings::json>()},
      {"--time", "output", "FILE", "",
       "also plan the time of a step on the machine that this profile describes (written by "
       "tessera bench machine, or by hand: docs/machine-profiles.md); with --params also give "
       "--batch and "
       "--seq",
       "plan", path<&Settings::machine>()},
      {"--json", "output", "FILE", "", "write the results as JSON", "scale",
       path<&Settings::json>()},
      {"--report", "output", "FILE", "", "draw the results as one HTML page", "scale",
       path<&Settings::report>()},
      {"--measure", "output", "", "",
       "train the models that fit this machine for two steps, with ranks as threads, and show "
       "measured beside planned memory",
       "scale", on<&Settings::measure>()},
      {"--report", "output", "FILE", "", "write a page with charts of memory, one step and losses",
       kBoth, path<&Settings::report>()},
      {"--report", "output", "FILE", "", "write a page with charts of memory", "plan",
       path<&Settings::report>()},
      {"--trace", "output", "FILE", "", "write a Perfetto trace of every rank's first steps",
       "train", path<&Settings::trace>()},
      {"--trace", "output", "FILE", "", "", "compare plan", {}},
      {"--support", "output", "", "",
       "print which options work together, the text of docs/support.md", "doctor",
       on<&Settings::support>()},
  };
}

std::vector<OptionRow> config_rows() {
  return {
      {"--config", kConfigGroup, "FILE", "",
       "take options from FILE, with lines like lr = 3e-4 and strategy = \"zero3\"; those on the "
       "command line count more",
       kEvery, path<&Settings::config_file>()},
      {"--write-config", kConfigGroup, "FILE", "",
       "write these options to FILE for --config, with all others as comments, and stop", kEvery,
       path<&Settings::write_config>()},
  };
}

std::string purpose(std::string_view command) {
  if (command == "train") {
    return "Trains a GPT on N ranks and shows the loss, speed and memory.";
  }
  if (command == "compare") {
    return "Trains the same GPT under several strategies and shows what each costs in time and "
           "memory.";
  }
  if (command == "plan") {
    return "Plans each rank's memory without training: runs the same code on a device that only "
           "counts.";
  }
  if (command == "scale") {
    return "Finds the largest model of a family that fits a budget, under each strategy on each "
           "number of ranks.";
  }
  if (command == "sample") {
    return "Generates text from a trained model that is sharded over N ranks.";
  }
  return "Shows what this machine and this build offer, and what is missing.";
}

std::string_view needed_by(std::string_view command) {
  if (command == "sample") { return " --init PATH"; }
  return command == "train" || command == "compare" ? " --data PATH" : "";
}

}  // namespace

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> all;
    for (const auto& rows : {model_rows(), data_rows(), parallel_rows(), training_rows(),
                             sampling_rows(), checkpoint_rows(), output_rows(), config_rows()}) {
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return table;
}

bool applies_to(const OptionRow& row, std::string_view command) {
  return row.commands.find(command) != std::string_view::npos;
}

std::string help_text(std::string_view command) {
  std::string options;
  std::string later;
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (!applies_to(row, command)) { continue; }
    if (row.help.empty()) {
      later += fmt::format("{}{}", later.empty() ? "" : ", ", row.name);
      continue;
    }
    if (row.group != group) { options += fmt::format("\n{}:\n", row.group); }
    group = row.group;
    options += help_on_option(row.name, row.value, row.help, row.preset);
  }
  if (options.empty()) {
    return fmt::format("{}\n\nusage: tessera {}\n", purpose(command), command);
  }
  if (!later.empty()) {
    later = fmt::format("\nonly with tessera train: {}\n", wrapped(later, 66, 2));
  }
  return fmt::format("{}\n\nusage: tessera {}{} [options]\n{}{}", purpose(command), command,
                     needed_by(command), options, later);
}

}  // namespace tessera::tools

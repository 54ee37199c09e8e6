#include "tools/doctor/support.hpp"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/simulate.hpp"
#include "tools/options/command_line.hpp"
#include "tools/options/option_words.hpp"
#include "tools/options/ranks.hpp"

namespace tessera::tools {
namespace {

struct Choice {
  ModelOptions model;
  nn::DecoderOptions gpt;
  OptimizerOptions optimizer;
  DeviceKind device = DeviceKind::cpu;
};

/// Hybrid with both of its groups: copies on two ranks.
Choice under(Strategy strategy) {
  Choice choice;
  choice.model.strategy = strategy;
  if (strategy == Strategy::hybrid) { choice.model.shard_group = 1; }
  return choice;
}

/// A row of a table: the options that it changes from the defaults.
struct Feature {
  std::string name;
  std::function<void(Choice&)> set;
};

/// Numbered reasons, in the order in which they come up.
class Notes {
 public:
  std::string number(const std::string& text) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == text) { return fmt::format("no ({})", i + 1); }
    }
    texts_.push_back(text);
    return fmt::format("no ({})", texts_.size());
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      all += fmt::format("{}. {}\n", i + 1, texts_[i]);
    }
    return all;
  }

 private:
  std::vector<std::string> texts_;
};

constexpr nn::DecoderConfig kSmall{.layers = 2, .hidden = 8, .heads = 2, .vocab = 16, .seq = 4};

void use(World& world, const Choice& choice) {
  auto gpt = shard(nn::Decoder(kSmall, choice.gpt), world, choice.model);
  gpt.materialize(/*seed=*/1);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kSmall.seq), 1);
  gpt.module().reserve(1);
  (void)gpt.module().evaluate(tokens, tokens);
  if (choice.model.purpose == Purpose::inference) { return; }
  gpt.optimize_with(AdamW{}, choice.optimizer);
  for (int micro = 0; micro < choice.model.accumulate; ++micro) {
    gpt.forward_backward(tokens, tokens);
  }
  gpt.step();
}

/// Why the library refuses `choice`; empty if it works.
std::string why_not(const Choice& choice) {
  try {
    const SimulatedRank rank{.ranks = 2, .backend = {.device = choice.device}};
    simulate_rank(rank, [&](World& world) { use(world, choice); });
  } catch (const ConfigError& refusal) { return refusal.what(); }
  return {};
}

std::string cell(const Choice& choice, Notes& notes) {
  const std::string why = why_not(choice);
  return why.empty() ? "yes" : notes.number(why);
}

std::vector<Feature> features() {
  return {
      {"fp32", [](Choice&) {}},
      {"compute bf16, fp32 master weights", [](Choice& c) { c.model.compute = DType::bf16; }},
      {"compute fp16, fp32 master weights", [](Choice& c) { c.model.compute = DType::fp16; }},
      {"compute bf16, remainders of master weights",
       [](Choice& c) {
         c.model.compute = DType::bf16;
         c.model.master_weights = MasterWeights::remainder;
       }},
      {"compute fp16, remainders of master weights",
       [](Choice& c) {
         c.model.compute = DType::fp16;
         c.model.master_weights = MasterWeights::remainder;
       }},
      {"remainders of master weights, optimizer in the host pool",
       [](Choice& c) {
         c.model.compute = DType::bf16;
         c.model.master_weights = MasterWeights::remainder;
         c.model.offload = Offload::optimizer;
       }},
      {"remainders of master weights, state in the host pool",
       [](Choice& c) {
         c.model.compute = DType::bf16;
         c.model.master_weights = MasterWeights::remainder;
         c.model.offload = Offload::state;
       }},
      {"dynamic loss scaling, bf16",
       [](Choice& c) {
         c.model.compute = DType::bf16;
         c.model.loss_scaling.mode = LossScaleMode::dynamic;
       }},
      {"fixed loss scale, fp16",
       [](Choice& c) {
         c.model.compute = DType::fp16;
         c.model.loss_scaling.mode = LossScaleMode::fixed;
       }},
      {"moments of 8 bits",
       [](Choice& c) {
         c.optimizer.moments = MomentFormat::int8;
         c.model.align_elems = kMomentBlock;
       }},
      {"bf16 on the wire", [](Choice& c) { c.model.reduce = DType::bf16; }},
      {"accumulation, mode every",
       [](Choice& c) {
         c.model.accumulate = 2;
         c.model.accumulate_mode = AccumulateMode::every;
       }},
      {"accumulation, mode deferred",
       [](Choice& c) {
         c.model.accumulate = 2;
         c.model.accumulate_mode = AccumulateMode::deferred;
       }},
      {"reshard after backward", [](Choice& c) { c.model.reshard = Reshard::after_backward; }},
      {"persist_elems", [](Choice& c) { c.model.persist_elems = 1'000'000; }},
      {"prefetch_backward", [](Choice& c) { c.model.tuning.prefetch_backward = 2; }},
      {"activations in the host pool", [](Choice& c) { c.gpt.boundaries = nn::Boundaries::host; }},
      {"optimizer in the host pool", [](Choice& c) { c.model.offload = Offload::optimizer; }},
      {"optimizer in the host pool but for a part, bf16, accumulation",
       [](Choice& c) {
         c.model.offload = Offload::optimizer;
         c.model.offload_keep = 0.5F;
         c.model.compute = DType::bf16;
         c.model.accumulate = 2;
       }},
      {"optimizer's state in the host pool", [](Choice& c) { c.model.offload = Offload::state; }},
      {"offload_keep alone", [](Choice& c) { c.model.offload_keep = 0.5F; }},
      {"recompute every block", [](Choice& c) { c.gpt.recompute = nn::Recompute::block(); }},
      {"recompute every second block, bf16",
       [](Choice& c) {
         c.gpt.recompute = nn::Recompute::every(2);
         c.model.compute = DType::bf16;
       }},
      {"recompute GELU and layer norms, fp16",
       [](Choice& c) {
         c.gpt.recompute = nn::Recompute::gelu() | nn::Recompute::layer_norm();
         c.model.compute = DType::fp16;
       }},
      {"head in chunks of rows, accumulation",
       [](Choice& c) {
         c.gpt.head_rows = 16;
         c.model.accumulate = 2;
       }},
      {"dropout, with recompute",
       [](Choice& c) {
         c.gpt.dropout = 0.1F;
         c.gpt.recompute = nn::Recompute::block();
       }},
      {"logits gathered on rank 0",
       [](Choice& c) { c.gpt.gather_logits = nn::GatherLogits::on_rank0; }},
      {"inference", [](Choice& c) { c.model.purpose = Purpose::inference; }},
      {"inference in bf16",
       [](Choice& c) {
         c.model.purpose = Purpose::inference;
         c.model.compute = DType::bf16;
       }},
      {"inference, optimizer in the host pool",
       [](Choice& c) {
         c.model.purpose = Purpose::inference;
         c.model.offload = Offload::optimizer;
       }},
      {"inference, accumulation",
       [](Choice& c) {
         c.model.purpose = Purpose::inference;
         c.model.accumulate = 2;
       }},
  };
}

std::string feature_table(Notes& notes) {
  std::string text = "| |";
  std::string rule = "\n|---|";
  for (const Strategy strategy : all_strategies()) {
    text += fmt::format(" `{}` |", to_string(strategy));
    rule += "---|";
  }
  text += rule + "\n";
  for (const Feature& feature : features()) {
    text += fmt::format("| {} |", feature.name);
    for (const Strategy strategy : all_strategies()) {
      Choice choice = under(strategy);
      feature.set(choice);
      text += fmt::format(" {} |", cell(choice, notes));
    }
    text += '\n';
  }
  return text;
}

/// The answer under all strategies, or the first one that differs.
std::string under_all(Choice choice, Notes& notes) {
  std::string answer;
  for (const Strategy strategy : all_strategies()) {
    choice.model.strategy = strategy;
    choice.model.shard_group = under(strategy).model.shard_group;
    const std::string here = cell(choice, notes);
    if (answer.empty()) { answer = here; }
    if (here != answer) { return fmt::format("{}; {}: {}", answer, to_string(strategy), here); }
  }
  return answer;
}

/// The rows of the tables whose answer differs on a CUDA device, or a sentence if none does.
std::string on_cuda(Notes& notes) {
  std::string differing;
  for (const Feature& feature : features()) {
    for (const Strategy strategy : all_strategies()) {
      Choice choice = under(strategy);
      feature.set(choice);
      const std::string here = cell(choice, notes);
      choice.device = DeviceKind::cuda;
      if (const std::string there = cell(choice, notes); there != here) {
        differing += fmt::format("- {}, `{}`: {}\n", feature.name, to_string(strategy), there);
      }
    }
  }
  return differing.empty() ? "On `cuda` every line of the table above has the same answers.\n"
                           : "On `cuda` the table above has other answers here:\n\n" + differing;
}

std::string dtype_table(Notes& notes) {
  const std::vector<DType> dtypes = {DType::fp32, DType::bf16, DType::fp16, DType::fp64};
  std::string text = "| compute | gradient |";
  for (const DType reduce : dtypes) { text += fmt::format(" reduce {} |", to_string(reduce)); }
  text += "\n|---|---|---|---|---|---|\n";
  for (const DType compute : dtypes) {
    for (const DType gradient : dtypes) {
      text += fmt::format("| {} | {} |", to_string(compute), to_string(gradient));
      for (const DType reduce : dtypes) {
        Choice choice;
        choice.model.compute = compute;
        choice.model.gradient = gradient;
        choice.model.reduce = reduce;
        text += fmt::format(" {} |", under_all(choice, notes));
      }
      text += '\n';
    }
  }
  return text;
}

/// The job that a launcher would have started for these settings.
std::optional<LaunchedJob> job_of(const Settings& settings) {
  const bool processes = settings.comm == CommChoice::mpi || settings.comm == CommChoice::nccl;
  if (!processes) { return {}; }
  return LaunchedJob{"mpirun", "OMPI_COMM_WORLD_SIZE", 0, 2, /*on_machine=*/2};
}

std::string flag_table(Notes& notes) {
  using Words = std::vector<const char*>;
  const std::vector<Words> asked = {
      {"--device", "cpu"},
      {"--device", "cuda"},
      {"--device", "meta"},
      {"--device", "cuda", "--ranks", "8"},
      {"--device", "cuda", "--threads", "2"},
      {"--device", "cuda", "--comm", "mpi"},
      {"--device", "cuda", "--comm", "nccl"},
      {"--device", "cuda", "--offload", "activations"},
      {"--device", "cuda", "--graph"},
      {"--device", "cuda", "--graph", "--ranks", "8"},
      {"--device", "cuda", "--graph", "--steps", "2"},
      {"--device", "cpu", "--graph"},
      {"--deterministic"},
      {"--device", "cuda", "--nondeterministic-attention"},
      {"--device", "cuda", "--channel-priority", "high"},
      {"--channel-priority", "high"},
      {"--device", "cuda", "--spare-multiprocessors", "8"},
      {"--spare-multiprocessors", "8"},
      {"--device", "cuda", "--comm", "nccl", "--nccl-max-ctas", "8", "--nccl-windows"},
      {"--device", "cuda", "--ranks", "8", "--nccl-windows"},
      {"--device", "cpu", "--comm", "local"},
      {"--device", "cpu", "--comm", "mpi"},
      {"--device", "cpu", "--comm", "nccl"},
      {"--strategy", "fsdp"},
      {"--strategy", "hybrid"},
      {"--strategy", "hybrid", "--comm", "mpi"},
      {"--strategy", "hybrid", "--device", "cuda", "--comm", "nccl"},
      {"--strategy", "hybrid", "--ranks", "8", "--shard-group", "4"},
      {"--strategy", "hybrid", "--ranks", "8", "--shard-group", "3"},
      {"--shard-group", "2"},
      {"--offload", "optimizer"},
      {"--offload", "optimizer,activations"},
      {"--offload", "state"},
      {"--offload", "optimizer,state"},
      {"--offload-keep", "0.5"},
      {"--device", "cuda", "--offload", "optimizer"},
      {"--device", "cuda", "--offload", "optimizer", "--graph"},
      {"--device", "cuda", "--offload", "optimizer", "--host-threads", "8"},
      {"--offload", "optimizer", "--host-threads", "8"},
      {"--device", "cuda", "--offload", "state", "--graph"},
      {"--device", "cuda", "--offload", "state", "--host-threads", "8"},
      {"--device", "cuda", "--host-threads", "8"},
      {"--checkpoint", "DIR", "--checkpoint-every", "10"},
      {"--checkpoint", "DIR", "--checkpoint-sync"},
      {"--checkpoint-every", "10"},
      {"--checkpoint", "DIR", "--resume"},
      {"--resume"},
      {"--resume-from", "DIR/step-00000010"},
      {"--resume-moments", "convert"}};
  std::string text = "| `tessera train ...` | |\n|---|---|\n";
  for (Words words : asked) {
    const std::string name = fmt::format("{}", fmt::join(words, " "));
    words.insert(words.begin(), "train");
    std::string answer = "yes";
    try {
      const Settings settings = parse_command_line(words).settings;
      (void)settle(settings, job_of(settings), /*has_mpi=*/true);
    } catch (const ConfigError& refusal) {
      answer = notes.number(with_options_for_fields(refusal.what()));
    }
    text += fmt::format("| `{}` | {} |\n", name, answer);
  }
  return text;
}

}  // namespace

std::string support_table() {
  Notes notes;
  std::string text =
      "# What works together\n\n"
      "Made by `tessera doctor --support`, which asks the library: a combination that works has "
      "made a model and a step\n"
      "on a rank that only counts, and a refusal is what the user reads (`ConfigError`, exit "
      "status 2). A test holds this page\n"
      "to it. What is not refused has an effect.\n\n"
      "## Features by strategy\n\n";
  text += feature_table(notes);
  text += '\n';
  text += on_cuda(notes);
  text += "\n## Dtypes, under every strategy\n\n" + dtype_table(notes);
  text += "\n## Devices, communicators and what this build does not have\n\n" + flag_table(notes);
  text +=
      "\nCommunicators: `local` (ranks are threads) in every build, `mpi` in builds that found "
      "MPI, `nccl` with the CUDA\nmodule. `local` and `mpi` give the same bits. Plans count for "
      "any "
      "of them, and for either device, on any machine.\n"
      "Several ranks on `cuda` that are threads share the GPUs out in turn, all of them one where "
      "there is one. An optimizer of\nthe user's own works on `cuda` if it enqueues kernels on the "
      "stream that it is given: loops of the host cannot read\nthe device's memory.\n";
  return text + "\n## Why not\n\n" + notes.text();
}

}  // namespace tessera::tools

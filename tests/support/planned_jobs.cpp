#include "support/planned_jobs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/support/convert.hpp"
#include "support/groups.hpp"

namespace tessera::test {
namespace {

void train_gpt(World& world, const ModelOptions& options, const nn::DecoderConfig& config,
               std::int64_t batch, nn::DecoderOptions gpt_options = {}) {
  auto gpt = shard(nn::Decoder(config, gpt_options), world, options);
  gpt.materialize(/*seed=*/3);
  gpt.optimize_with(AdamW{}, {.clip_norm = 1.0F});
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch * config.seq), 1);
  for (int step = 0; step < 2; ++step) {
    for (int micro = 0; micro < options.accumulate; ++micro) {
      gpt.forward_backward(tokens, tokens);
    }
    gpt.step();
  }
}

/// Reads parameters and writes gradients, of any dtype, where a real trainer has its kernels.
void touch(World& world, const ForwardScope& scope, const char* name, float& sum) {
  world.compute([&] {
    const ConstValues values = scope[name];
    float first = 0.0F;
    kernels::widen(&first, values, 1);
    sum += first;
  });
}

void add_one(World& world, const BackwardScope& scope, const char* name) {
  world.compute([&] {
    const Values values = scope.grad(name);
    constexpr float one = 1.0F;
    kernels::narrow(values, &one, 1);
  });
}

void train_by_hand(World& world, const ModelOptions& options) {
  ShardedModel model{world, options};
  const Unit root = model.add_unit("root", {{"table", {131, 17}}, {"scale", {17}, false}},
                                   {.kind = UnitKind::root});
  std::vector<Unit> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(
        model.add_unit("block." + std::to_string(i), {{"w", {17, 40 + i}}, {"b", {1}}}));
  }
  const Unit head = model.add_unit(
      "head", {{.name = "table", .shape = {131, 17}, .tied_to = TiedTo{"root", "table"}}});
  model.materialize(init::normal(1, 0.02F));
  model.optimize_with(SGD{.lr = 0.1F, .momentum = 0.9F});

  const Buffer activations = world.allocate(Category::activations, 5000, "activations");
  std::vector<float> data(777);
  const CountedMemory registered = world.memory().register_memory(
      Category::workspace, data.size() * sizeof(float), "the loader's data");
  float sum = 0.0F;
  for (int step = 0; step < 2; ++step) {
    for (int micro = 0; micro < options.accumulate; ++micro) {
      touch(world, model.forward(root), "table", sum);
      for (const Unit block : blocks) { touch(world, model.forward(block), "w", sum); }
      touch(world, model.forward(head), "table", sum);
      add_one(world, model.backward(head), "table");
      for (std::size_t i = blocks.size(); i-- > 0;) {
        add_one(world, model.backward(blocks[i]), "w");
      }
      add_one(world, model.backward(root), "table");
    }
    model.step();
  }
}

}  // namespace

std::vector<PlannedJob> planned_jobs() {
  return {
      {"small GPT",
       [](World& world, const ModelOptions& options) {
         train_gpt(world, options, {.layers = 2, .hidden = 12, .heads = 3, .vocab = 37, .seq = 8},
                   1);
       }},
      {"wide GPT of one layer",
       [](World& world, const ModelOptions& options) {
         train_gpt(world, options, {.layers = 1, .hidden = 64, .heads = 4, .vocab = 500, .seq = 16},
                   2);
       }},
      {"deep GPT whose logits are gathered",
       [](World& world, const ModelOptions& options) {
         train_gpt(world, options, {.layers = 5, .hidden = 10, .heads = 1, .vocab = 11, .seq = 5},
                   3, {.gather_logits = nn::GatherLogits::on_rank0});
       }},
      {"hand-written trainer", train_by_hand},
  };
}

std::vector<ModelOptions> planned_options(int ranks) {
  std::vector<ModelOptions> all;
  for (const Strategy strategy : all_strategies()) {
    const int group = half_of(ranks, strategy);
    all.push_back({.strategy = strategy, .shard_group = group});
    all.push_back({.strategy = strategy, .shard_group = group, .reduce = DType::bf16});
    for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
      all.push_back({.strategy = strategy,
                     .shard_group = group,
                     .accumulate = 2,
                     .prefetch = 2,
                     .accumulate_mode = mode});
    }
  }
  if (ranks % 2 == 0) {
    const std::vector<MeshDim> mesh{{"shard", ranks / 2}, {"replicate", 2}};
    all.push_back({.strategy = Strategy::zero1, .accumulate = 2, .mesh = mesh});
    all.push_back({.strategy = Strategy::zero2, .mesh = mesh, .reduce = DType::bf16});
  }
  constexpr Strategy gathers = Strategy::zero3;
  all.push_back({.strategy = gathers, .tuning = {.prefetch_backward = 2}});
  all.push_back({.strategy = gathers, .prefetch = 0, .reshard = Reshard::after_backward});
  all.push_back({.strategy = gathers, .accumulate = 2, .persist_elems = 1'000'000});
  return all;
}

std::string difference(const MemoryReport& planned, const MemoryReport& measured) {
  std::string text;
  const auto compare = [&](const char* what, const CategoryBytes& a, const CategoryBytes& b) {
    if (!(a == b)) { text += fmt::format("{}: {} and {}; ", what, describe(a), describe(b)); }
  };
  compare("live", planned.live, measured.live);
  compare("at the peak", planned.at_peak, measured.at_peak);
  compare("in use", planned.in_use, measured.in_use);
  compare("most in use", planned.most_in_use, measured.most_in_use);
  if (planned.peak_bytes != measured.peak_bytes) { text += "peak_bytes; "; }
  if (planned.peak_at != measured.peak_at) { text += "peak_at; "; }
  if (planned.most_in_use_at != measured.most_in_use_at) { text += "most_in_use_at; "; }
  if (planned.allocations != measured.allocations) { text += "allocations; "; }
  if (planned.by_phase != measured.by_phase) { text += "by_phase; "; }
  return text;
}

std::string text_of(const ModelOptions& options) {
  return fmt::format("{} ({}, {} dimensions), {} micro-batches ({}), reduced in {}, resharded {}",
                     to_string(options.strategy), options.shard_group, options.mesh.size(),
                     options.accumulate, to_string(options.accumulate_mode),
                     to_string(options.reduce), to_string(options.reshard));
}

}  // namespace tessera::test

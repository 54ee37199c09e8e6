#include <gtest/gtest.h>

#include "tessera/tessera.hpp"

// Options shown on pages: each piece is a block of a page (tests/layers compares them).
namespace tessera::test::page_snippets_test {
namespace {

// docs/checks.md and docs/optimizers.md.
void train_in_groups(tessera::World& world, tessera::Strategy strategy) {
  tessera::ShardedModel model{world, {.strategy = strategy, .checks = tessera::Checks::memory}};
  model.add_unit("wte", {{"wte.weight", {8, 4}}});
  model.add_unit("head", {{"weight", {4, 8}}});
  model.materialize(init::constant(0.5F));
  const auto embeddings = [](const tessera::ParameterInfo& p) { return p.name == "wte.weight"; };
  const auto head = [](const tessera::ParameterInfo& p) { return p.unit == "head"; };
  model.optimize_with(
      tessera::AdamW{.lr = 3e-4F},
      {.groups = {{.name = "embeddings", .contains = embeddings, .lr_scale = 0.1F},
                  {.name = "head", .contains = head, .lr_scale = 5.0F, .weight_decay = 0.0F}}});
}

// docs/precision.md and docs/optimizers.md.
void train_in_bf16(tessera::World& world, tessera::Strategy strategy) {
  tessera::ShardedModel model{world, {.strategy = strategy, .compute = tessera::DType::bf16}};
  model.add_unit("a", {{"w", {8, 4}}});
  model.materialize(init::constant(0.5F));
  model.optimize_with(tessera::Lion{.lr = 1e-4F, .weight_decay = 0.1F},
                      {.clip_norm = 1.0F, .moments = tessera::MomentFormat::bf16});
}

// docs/moments.md.
void train_with_few_bits(tessera::World& world, tessera::Strategy strategy) {
  tessera::ShardedModel model{world, {.strategy = strategy, .align_elems = tessera::kMomentBlock}};
  model.add_unit("a", {{"w", {8, 4}}});
  model.materialize(init::constant(0.5F));
  model.optimize_with(tessera::AdamW{.lr = 3e-4F}, {.moments = tessera::MomentFormat::int8});
}

TEST(PageSnippets, AreAcceptedUnderEveryStrategy) {
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    for (auto* train : {train_in_groups, train_in_bf16, train_with_few_bits}) {
      EXPECT_NO_THROW(run_ranks(2, [&](World& world) { train(world, strategy); }));
    }
  }
}

}  // namespace
}  // namespace tessera::test::page_snippets_test

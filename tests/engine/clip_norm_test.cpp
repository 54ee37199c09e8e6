#include <gtest/gtest.h>

#include <cmath>

#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// Bugs that other systems shipped: norms per shard, norms multiplied by the number of ranks, norms
// that include padding or frozen parameters, and norms that count a tied tensor twice.
namespace tessera::test::clip_norm_test {
namespace {

constexpr float kClip = 2.0F;
constexpr float kRate = 0.5F;

/// Odd sizes, so shards cut tensors and end with padding. 'b' is frozen; the head's table is the
/// root's. Every element's gradient on rank r in micro-batch m is g + r + m: integers, so sums are
/// exact in any order.
struct Model {
  Model(World& world, const ModelOptions& options) : model{world, options} {
    root = model.add_unit("root", {{"table", {7, 3}}}, {.kind = UnitKind::root});
    block = model.add_unit("block", {{"w", {5}}, {"b", {9}, /*trainable=*/false}, {"v", {11}}});
    head = model.add_unit("head",
                          {{.name = "table", .shape = {7, 3}, .tied_to = TiedTo{"root", "table"}}});
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{.lr = kRate, .momentum = 0.0F}, {.clip_norm = kClip});
  }
  void micro_batch(float more) {
    for (const Unit unit : {root, block, head}) { (void)model.forward(unit); }
    add(head, "table", 21, 2.0F + more);
    {
      const auto g = model.backward(block);
      for (int i = 0; i < 5; ++i) { g.grad("w")[i] += 3.0F + more; }
      for (int i = 0; i < 11; ++i) { g.grad("v")[i] += 5.0F + more; }
    }
    add(root, "table", 21, 1.0F);
  }
  void add(Unit unit, const char* name, int elems, float value) {
    const auto g = model.backward(unit);
    for (int i = 0; i < elems; ++i) { g.grad(name)[i] += value; }
  }
  ShardedModel model;
  Unit root;
  Unit block;
  Unit head;
};

class ClipNorm : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ClipNorm, ::testing::Values(1, 2, 3, 4, 7),
                         ::testing::PrintToStringParamName());

TEST_P(ClipNorm, UsesTheNormOfTheWholeGradientUnderEveryStrategyOnAnyRanks) {
  for (const Strategy strategy : all_strategies()) {
    for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
      run_ranks(GetParam(), [&](World& world) {
        Model net{world,
                  {.strategy = strategy,
                   .shard_group = half_of(world.size(), strategy),
                   .accumulate = 2,
                   .accumulate_mode = mode}};
        net.micro_batch(static_cast<float>(world.rank()));
        net.micro_batch(static_cast<float>(world.rank() + 1));
        net.model.step();

        const double mean = (world.size() - 1) / 2.0 + 0.5;  // mean of r + m
        const auto square = [](double x) { return x * x; };
        const double norm =
            std::sqrt(21 * square(3 + mean) + 5 * square(3 + mean) + 11 * square(5 + mean));
        const StepReport report = net.model.report();
        // A gradient is the mean of 2 n micro-batches: an exact sum of integers, times 1 / n. Its
        // norm is a sum in fp64; the coefficient and an update are a few operations more.
        const double u = unit_roundoff(DType::fp32);
        EXPECT_NEAR(report.grad_norm, norm, 3 * u * norm) << to_string(strategy);
        // bound: the coefficient adds 1e-6 to the norm
        EXPECT_NEAR(report.clip_coefficient, kClip / norm, (6 * u + 1e-6 / norm) * kClip / norm);
        const auto all = exported(net.model, StateTensor::parameters);
        const auto stepped = [&](double gradient) {
          return 1.0 - static_cast<double>(kRate) * gradient * static_cast<double>(kClip) / norm;
        };
        const double most = u + 1e-6 / norm;  // bound: of parameters near 1; as above
        for (const float x : all.at("root.table")) { EXPECT_NEAR(x, stepped(3 + mean), most); }
        for (const float x : all.at("block.v")) { EXPECT_NEAR(x, stepped(5 + mean), most); }
        for (const float x : all.at("block.b")) { EXPECT_EQ(x, 1.0F); }
      });
    }
  }
}

// A sum in bf16 would lose small terms, more of them with more ranks.
TEST(GradientReduction, AddsInFp32UnlessToldOtherwiseAlsoForBf16Parameters) {
  constexpr int ranks = 8;
  const auto reduced = [](const ModelOptions& options) {
    float mean = 0.0F;
    run_ranks(ranks, [&](World& world) {
      ShardedModel model{world, options};
      const Unit unit = model.add_unit("a", {{"w", {3}}});
      model.materialize(init::constant(1.0F));
      (void)model.forward(unit);
      model.backward(unit).grad("w")[1] =
          world.rank() == 0 ? 1.0F : std::ldexp(static_cast<float>(world.rank()), -10);
      const auto all = exported(model, StateTensor::gradients);
      if (world.rank() == 0) { mean = all.at("a.w")[1]; }
    });
    return mean;
  };
  const float exact = (1.0F + std::ldexp(28.0F, -10)) / ranks;
  for (const Strategy strategy : all_strategies()) {
    for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
      EXPECT_EQ(reduced({.strategy = strategy, .compute = compute}), exact) << to_string(strategy);
    }
    EXPECT_NE(reduced({.strategy = strategy, .reduce = DType::bf16}), exact)
        << "rounded on its way";
  }
}

}  // namespace
}  // namespace tessera::test::clip_norm_test

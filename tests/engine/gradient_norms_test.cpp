// Norms of whole gradients that ranks have in parts, and gradients that the trainer multiplies:
// what a trainer with its own clipping needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::gradient_norms_test {
namespace {

using ::testing::HasSubstr;

constexpr int kTable = 21;
constexpr int kW = 5;
constexpr int kV = 11;

/// Odd sizes, so that shards cut tensors and end with padding. 'b' is frozen, the head's table is
/// the root's.
class Net {
 public:
  explicit Net(World& world, const ModelOptions& options = {}) : model{world, options} {
    root = model.add_unit("root", {{"table", {7, 3}}}, {.kind = UnitKind::root});
    block = model.add_unit("block", {{"w", {kW}}, {"b", {9}, /*trainable=*/false}, {"v", {kV}}});
    head = model.add_unit("head",
                          {{.name = "table", .shape = {7, 3}, .tied_to = TiedTo{"root", "table"}}});
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{.lr = 0.5F, .momentum = 0.5F});
  }
  /// Element i of a gradient is a sum of this over ranks, exact in any order.
  static float value(int parameter, int i, int rank) {
    return 0.375F * static_cast<float>((i * 7 + parameter * 3 + rank) % 11) - 1.25F;
  }
  /// A micro-batch in scopes that are not counted, so that more can follow.
  void pass() {
    {
      const OpenScope scope = model.open_any(root, /*backward=*/true);
      add(scope, 0, "table", kTable);
    }
    const OpenScope scope = model.open_any(block, /*backward=*/true);
    add(scope, 1, "w", kW);
    add(scope, 2, "v", kV);
  }
  void add(const OpenScope& scope, int parameter, const char* name, int elems) {
    const Tensor gradient = scope.grad(name);
    for (int i = 0; i < elems; ++i) { gradient[i] += value(parameter, i, model.world().rank()); }
  }

  ShardedModel model;
  Unit root;
  Unit block;
  Unit head;
};

/// The norm of the averaged gradient, in fp64.
double expected(int parameter, int elems, int ranks, Norm norm) {
  double squares = 0.0;
  double largest = 0.0;
  for (int i = 0; i < elems; ++i) {
    double sum = 0.0;
    for (int rank = 0; rank < ranks; ++rank) { sum += Net::value(parameter, i, rank); }
    squares += sum / ranks * sum / ranks;
    largest = std::max(largest, std::fabs(sum / ranks));
  }
  return norm == Norm::two ? std::sqrt(squares) : largest;
}

class GradientNorms : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradientNorms, ::testing::Values(1, 2, 3, 4, 7),
                         ::testing::PrintToStringParamName());

using Norms = std::vector<std::vector<double>>;

TEST_P(GradientNorms, AreThoseOfWholeGradientsWithTheSameBitsUnderEveryStrategy) {
  const int ranks = GetParam();
  for (const Norm norm : {Norm::two, Norm::infinity}) {
    Norms first;
    for (const Strategy strategy : all_strategies()) {
      run_ranks(ranks, [&](World& world) {
        Net net{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
        net.pass();
        const Norms norms = net.model.gradient_norms(norm);
        ASSERT_EQ(norms.size(), 3U);
        const auto near = [&](double found, int parameter, int elems) {
          // bound: elements are exact; their squares are added in fp64, and so is the average
          const double whole = expected(parameter, elems, ranks, norm);
          EXPECT_NEAR(found, whole, 4 * elems * unit_roundoff(DType::fp64) * whole);
        };
        near(norms[0][0], 0, kTable);
        near(norms[1][0], 1, kW);
        near(norms[1][2], 2, kV);
        EXPECT_EQ(norms[1][1], 0.0) << "frozen";
        EXPECT_EQ(norms[2][0], 0.0) << "an alias";
        if (world.rank() == 0 && first.empty()) { first = norms; }
        EXPECT_EQ(net.model.gradient_norms(norm), norms) << "a second call changes nothing";
      });
      run_ranks(ranks, [&](World& world) {
        Net net{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
        net.pass();
        EXPECT_EQ(net.model.gradient_norms(norm), first) << to_string(strategy);
      });
    }
  }
}

TEST_P(GradientNorms, OfGradientsThatWereMultipliedAreThoseThatTheStepUses) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(GetParam(), [&](World& world) {
      Net net{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      net.pass();
      const Norms before = net.model.gradient_norms();
      net.model.scale_gradient(net.head, "table", 0.5F);  // the root's
      net.model.clear_gradient(net.block, "w");
      const Norms after = net.model.gradient_norms();
      EXPECT_EQ(after[0][0], 0.5 * before[0][0]) << to_string(strategy);
      EXPECT_EQ(after[1][0], 0.0);
      EXPECT_EQ(after[1][2], before[1][2]);
      net.pass();  // more gradients are added to those
      net.model.step();
      const auto values = exported(net.model, StateTensor::parameters);
      for (const float w : values.at("block.w")) { EXPECT_NE(w, 1.0F); }
      net.pass();
      EXPECT_EQ(net.model.gradient_norms()[0][0], before[0][0]) << "the factors were for one step";
    });
  }
}

// An optimizer's own clipping by the same coefficient gives the same parameters.
TEST(GradientNormsAndClipNorm, AgreeWithTheStepsOwnNorm) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2, [&](World& world) {
      Net net{world, {.strategy = strategy}};
      net.pass();
      double squares = 0.0;
      for (const auto& unit : net.model.gradient_norms()) {
        for (const double norm : unit) { squares += norm * norm; }
      }
      net.model.step();
      // bound: three norms are rounded, and added in another order
      const double u = 8 * unit_roundoff(DType::fp64);
      EXPECT_NEAR(std::sqrt(squares), net.model.report().grad_norm, u * std::sqrt(squares));
    });
  }
}

// Parts along `tensor` are added when gradients are read: what came later would be added twice.
TEST(GradientNorms, OnAMeshWithTensorAreOfTheWholeStep) {
  run_ranks(2, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero2, .mesh = {{"tensor", 2}}}};
    const Unit unit =
        model.add_unit("u",
                       {{.name = "c", .shape = {8}, .cut = TensorCut{.dim = 0}},
                        {.name = "w", .shape = {8}, .tensor_gradient = TensorGradient::part}},
                       {.kind = UnitKind::root});
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{.lr = 1.0F, .momentum = 0.0F});
    const auto pass = [&](bool refused) {
      const OpenScope scope = model.open_any(unit, /*backward=*/true);
      if (refused) {
        EXPECT_THROW((void)scope.grad("w"), ContractError);
        return;
      }
      const Tensor gradient = scope.grad("w");
      for (int i = 0; i < 8; ++i) { gradient[i] += 1.0F + static_cast<float>(world.rank()); }
    };
    pass(false);
    pass(false);
    EXPECT_EQ(model.gradient_norms(Norm::infinity)[0][1], 6.0);
    pass(/*refused=*/true);
    model.step();
    EXPECT_EQ(exported(model, StateTensor::parameters).at("u.w")[0], -5.0F);
  });
}

TEST(GradientNorms, DoNotSeeTheLossScale) {
  run_ranks(2, [](World& world) {
    Net net{world, {.loss_scaling = {.mode = LossScaleMode::fixed, .initial = 4.0F}}};
    (void)net.model.loss_scale();
    net.pass();
    const double whole = expected(1, kW, 2, Norm::two) / 4;
    // bound: as above
    EXPECT_NEAR(net.model.gradient_norms()[1][0], whole, 20 * unit_roundoff(DType::fp64) * whole);
  });
}

TEST(GradientNorms, AreInfiniteWhereAValueIsNotANumber) {
  run_ranks(2, [](World& world) {
    Net net{world};
    net.pass();
    net.model.open_any(net.block, true).grad("w")[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(net.model.gradient_norms(Norm::two)[1][0]));
    EXPECT_EQ(net.model.gradient_norms(Norm::infinity)[1][0], HUGE_VAL);
    net.model.scale_gradient(net.block, "w", 0.0F);
    EXPECT_EQ(net.model.gradient_norms(Norm::infinity)[1][0], HUGE_VAL) << "0 times NaN";
    net.model.clear_gradient(net.block, "w");
    EXPECT_EQ(net.model.gradient_norms(Norm::infinity)[1][0], 0.0);
  });
}

struct Mistake {
  const char* name;
  std::function<void(Net&, int rank)> make;
  const char* says;
  ModelOptions options = {};
};

TEST(GradientNorms, AreRefusedWithWhatToDo) {
  const std::vector<Mistake> mistakes{
      {"no gradients", [](Net& net, int) { (void)net.model.gradient_norms(); },
       "gradient_norms: gradients are complete only after the last micro-batch"},
      {"a frozen parameter",
       [](Net& net, int) {
         net.pass();
         net.model.scale_gradient(net.block, "b", 0.5F);
       },
       "'block.b' is frozen and has no gradient"},
      {"an optimizer on the host",
       [](Net& net, int) {
         net.pass();
         (void)net.model.gradient_norms();
       },
       "are in the host pool (ModelOptions::offload)",
       {.offload = Offload::optimizer}},
      // Not a hang: the first step, in which ranks compare more than later ones.
      {"one rank alone, in the first step",
       [](Net& net, int rank) {
         net.pass();
         if (rank == 1) { (void)net.model.gradient_norms(); }
         const double loss = 1.0;
         net.model.step(&loss);
       },
       "2-norms of gradients"},
      {"one rank alone, later",
       [](Net& net, int rank) {
         for (int step = 0; step < 3; ++step) {
           net.pass();
           if (step == 2 && rank == 0) { (void)net.model.gradient_norms(Norm::infinity); }
           net.model.step();
         }
       },
       "infinity norms of gradients"},
      {"different factors",
       [](Net& net, int rank) {
         net.pass();
         net.model.scale_gradient(net.block, "w", rank == 0 ? 0.5F : 0.25F);
         net.model.step();
       },
       "gradients multiplied or cleared 1 times"},
      {"the same factor on different parameters",
       [](Net& net, int rank) {
         net.pass();
         net.model.scale_gradient(net.block, rank == 0 ? "w" : "v", 0.5F);
         net.model.step();
       },
       "gradients multiplied or cleared 1 times"},
      {"a last factor after many",
       [](Net& net, int rank) {
         net.pass();
         for (int i = 0; i < 500; ++i) { net.model.scale_gradient(net.block, "w", 1.5F); }
         net.model.scale_gradient(net.block, "v", rank == 0 ? 0.5F : 0.25F);
         net.model.step();
       },
       "gradients multiplied or cleared 501 times"},
      {"one rank alone, before another pass that gathers",
       [](Net& net, int rank) {
         net.pass();
         if (rank == 1) { (void)net.model.gradient_norms(); }
         net.pass();
         net.model.step();
       },
       "2-norms of gradients",
       {.strategy = Strategy::zero3}},
  };
  for (const Mistake& mistake : mistakes) {
    try {
      run_ranks(2, [&](World& world) {
        Net net{world, mistake.options};
        mistake.make(net, world.rank());
      });
      ADD_FAILURE() << mistake.name << " is not refused";
    } catch (const Error& error) { EXPECT_THAT(error.what(), HasSubstr(mistake.says)); }
  }
}

}  // namespace
}  // namespace tessera::test::gradient_norms_test

// Updates of parameters cut along `tensor`: which elements of the whole a rank has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::mesh_update_test {
namespace {

/// Runs one step of a model of `weight` on a mesh, with equal gradients.
template <class Then>
void step(const ModelOptions& options, const ParameterSpec& weight, const Optimizer& optimizer,
          const OptimizerOptions& update, const Then& then) {
  run_ranks(MeshShape{options.mesh}.ranks(), [&](World& world) {
    ShardedModel model{world, options};
    const Unit unit = model.add_unit("unit", {weight});
    model.materialize(init::constant(1.0F));
    model.optimize_with(optimizer, update);
    (void)model.forward(unit);
    {
      const BackwardScope scope = model.backward(unit);
      std::fill_n(static_cast<float*>(scope.grad("w")), model.layout(unit).part(0).elems(), 1.0F);
    }
    model.step();
    then(world, model);
  });
}

TEST(UpdateOnAMesh, PassesEachElementOnceWithItsPlaceInTheWhole) {
  const ParameterSpec weight{
      .name = "w", .shape = {7, 90}, .cut = TensorCut{.dim = 1, .granule = 5, .sections = 3}};
  std::mutex mutex;
  std::vector<int> counts(630);
  const CustomOptimizer count{.name = "count", .update = [&](const ShardUpdate& piece) {
                                const std::lock_guard lock{mutex};
                                const Range mine{piece.first, std::ssize(piece.weights)};
                                std::int64_t next = piece.first;
                                piece.part->for_each_run(mine, [&](const Range& whole, auto at) {
                                  EXPECT_EQ(at, next);
                                  next += whole.elems;
                                  for (std::int64_t e = whole.first; e < whole.end(); ++e) {
                                    ++counts[static_cast<std::size_t>(e)];
                                  }
                                });
                                EXPECT_EQ(next, mine.end());
                              }};
  step({.strategy = Strategy::zero3, .mesh = {{"shard", 2}, {"tensor", 4}}}, weight, count, {},
       [](World&, ShardedModel&) {});
  EXPECT_THAT(counts, testing::Each(1));
}

// Both ranks' parts are equal. Half of the elements of each round up, but different ones.
TEST(UpdateOnAMesh, RoundsStochasticallyByAKeyThatNoOtherElementHas) {
  const ParameterSpec weight{.name = "w", .shape = {2, 512}, .cut = TensorCut{}};
  const SGD half_a_unit{.lr = 1.0F / 512, .momentum = 0.0F};
  step({.compute = DType::bf16, .mesh = {{"tensor", 2}}}, weight, half_a_unit,
       {.clip_norm = 0.0F, .rounding = Rounding::stochastic}, [](World&, ShardedModel& model) {
         model.export_state(StateTensor::parameters,
                            [](const ParameterInfo&, std::span<const float> values) {
                              const std::span first = values.first(512);
                              const auto up = std::ranges::count(first, 1.0F);
                              EXPECT_NEAR(static_cast<double>(up), 256, 64);
                              EXPECT_FALSE(std::ranges::equal(first, values.last(512)));
                            });
       });
}

}  // namespace
}  // namespace tessera::test::mesh_update_test

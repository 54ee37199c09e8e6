// The component's header compiles together with the headers of a libtorch program.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tessera/torch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::torch_build_test {
namespace {

TEST(TorchBuild, ALayerIsShardedAndTrains) {
  run_ranks(2, [](World& world) {
    const ::torch::nn::Linear layer(::torch::nn::LinearOptions(3, 2));
    auto model = tessera::torch::shard(layer, world, {.model = {.strategy = Strategy::zero3}});
    model.optimize_with(AdamW{});
    model.backward(model(::torch::ones({4, 3})).pow(2).mean());
    model.step();
    EXPECT_GT(model.report().loss, 0.0);
  });
}

}  // namespace
}  // namespace tessera::torch_build_test

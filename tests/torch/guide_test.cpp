// Mistakes in a trainer with a sharded module and the text of each error: the table of
// docs/libtorch-features.md, word for word.

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "modules.hpp"
#include "support/guide_table.hpp"
#include "tessera/tessera.hpp"

namespace torch_test::guide_test {
namespace {

using tessera::run_ranks;
using tessera::World;
using tessera::test::GuideRow;
namespace shards = tessera::torch;

struct LineImpl : torch::nn::Module {
  explicit LineImpl(int blocks) {
    in = register_module("in", torch::nn::Linear(5, 6));
    list = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < blocks; ++i) { list->push_back(Block{6}); }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = in(x);
    for (const auto& block : *list) { x = block->as<BlockImpl>()->forward(x); }
    return x;
  }

  torch::nn::Linear in{nullptr};
  torch::nn::ModuleList list{nullptr};
};
using Line = std::shared_ptr<LineImpl>;
using Model = shards::Sharded<LineImpl>;

const shards::ShardOptions kZero3{.model = {.strategy = tessera::Strategy::zero3}};

/// Builds a module on two ranks.
template <class Use>
auto built(Use use) {
  return [use] {
    run_ranks(2, [&](World& world) {
      use(world, seeded(1, [] { return std::make_shared<LineImpl>(2); }));
    });
  };
}

/// Runs a step of a sharded module, then makes the mistake.
template <class Use>
auto trained(Use use) {
  return built([use](World& world, const Line& net) {
    auto model = shards::shard(net, world, kZero3);
    model.optimize_with(tessera::AdamW{});
    const torch::Tensor x = torch::ones({4, 5});
    model.backward(model(x).mean());
    model.step();
    use(model, *net, x);
  });
}

std::vector<GuideRow> rows() {
  return {
      {"the module called instead of the model",
       trained([](Model&, LineImpl& net, const torch::Tensor& x) { net.forward(x); })},
      {"a parameter read between steps",
       trained([](Model&, LineImpl& net, const torch::Tensor&) { net.in->weight.sum(); })},
      {"a parameter used on another thread",
       trained([](Model&, LineImpl& net, const torch::Tensor& x) {
         std::exception_ptr error;
         std::thread{[&] {
           try {
             net.forward(x);
           } catch (...) { error = std::current_exception(); }
         }}.join();
         if (error) { std::rethrow_exception(error); }
       })},
      {"a parameter written, here in a pass",
       trained([](Model& model, LineImpl& net, const torch::Tensor&) {
         model.forward([&] {
           const torch::NoGradGuard no_grad;
           net.in->weight.mul_(0.5);
         });
       })},
      {"`loss.backward()`", trained([](Model& model, LineImpl&, const torch::Tensor& x) {
         model(x).mean().backward();
       })},
      {"`clip_grad_value_`", trained([](Model& model, LineImpl& net, const torch::Tensor& x) {
         model.backward(model(x).mean());
         torch::nn::utils::clip_grad_value_(net.parameters(), 0.1);
       })},
      {"`backward` before any forward pass of the step",
       trained([](Model& model, LineImpl&, const torch::Tensor&) {
         model.backward(torch::ones({}, torch::kFloat).set_requires_grad(true));
       })},
      {"a loss of several elements",
       trained([](Model& model, LineImpl&, const torch::Tensor& x) { model.backward(model(x)); })},
      {"a loss without a graph", trained([](Model& model, LineImpl&, const torch::Tensor& x) {
         model.backward(model(x).mean().detach());
       })},
      {"`step` without `backward`", trained([](Model& model, LineImpl&, const torch::Tensor& x) {
         model(x);
         model.step();
       })},
      {"a module of doubles", built([](World& world, const Line& net) {
         net->to(torch::kDouble);
         static_cast<void>(shards::shard(net, world, kZero3));
       })},
      {"a module sharded twice", built([](World& world, const Line& net) {
         const auto model = shards::shard(net, world, kZero3);
         static_cast<void>(shards::shard(net, world, kZero3));
       })},
      {"unit names that match no module", built([](World& world, const Line& net) {
         static_cast<void>(shards::shard(net, world, {.units = shards::units_named({"layers.*"})}));
       })},
      {"different modules on the ranks", built([](World& world, const Line&) {
         const auto net = seeded(1, [&] { return std::make_shared<LineImpl>(2 + world.rank()); });
         static_cast<void>(shards::shard(net, world, kZero3));
       })},
      {"a pass in a plan",
       [] {
         static_cast<void>(tessera::plan({.ranks = 2}, [](World& world) {
           auto model = shards::shard(std::make_shared<LineImpl>(2), world, kZero3);
           static_cast<void>(model(torch::ones({4, 5})));
         }));
       }},
  };
}

TEST(TorchGuide, ShowsWhatTheLibrarySaysToEachMistake) {
  tessera::test::expect_table("docs/libtorch-features.md", rows());
}

}  // namespace
}  // namespace torch_test::guide_test

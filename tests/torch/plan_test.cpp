// Plans of libtorch modules: the bytes that a sharded module then holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/torch/net.hpp"
#include "tessera/base/error.hpp"
#include "tessera/torch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::torch_plan_test {
namespace {

using tessera::torch::ShardOptions;
using tessera::torch::TrainingJob;
using tessera::torch::TrainingPlan;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Module = ::torch::nn::Module;

/// A module that maps rows of two numbers to anything.
struct Subject {
  const char* name;
  std::function<std::shared_ptr<Module>()> build;
  std::function<at::Tensor(Module&, const at::Tensor&)> forward;
  ShardOptions options = {};
  Optimizer optimizer = AdamW{};
};

/// Units within units, a frozen parameter, buffers.
struct OuterImpl : Module {
  at::Tensor forward(const at::Tensor& x) { return inner(norm(first(x)).relu()); }
  ::torch::nn::Linear first{register_module("first", ::torch::nn::Linear(2, 10))};
  ::torch::nn::BatchNorm1d norm{register_module("norm", ::torch::nn::BatchNorm1d(10))};
  ::torch::nn::Linear inner{register_module("inner", ::torch::nn::Linear(10, 10))};
};
using Outer = ::torch::nn::ModuleHolder<OuterImpl>;
struct NestedImpl : Module {
  at::Tensor forward(const at::Tensor& x) { return last(outer(x) * factor); }
  Outer outer{register_module("outer", Outer{})};
  at::Tensor factor = register_parameter("factor", ::torch::ones({10}), /*requires_grad=*/false);
  ::torch::nn::Linear last{register_module("last", ::torch::nn::Linear(10, 3))};
};

std::vector<Subject> subjects() {
  const auto net = [] { return Net().ptr(); };
  const auto forward = [](Module& module, const at::Tensor& x) {
    return module.as<NetImpl>()->forward(x);
  };
  return {
      {"the page's net", net, forward},
      {"accumulation and momentum",
       net,
       forward,
       {.model = {.accumulate = 2}},
       SGD{.momentum = 0.9F}},
      {"one unit",
       net,
       forward,
       {.units = [](const std::string& name, const Module&) { return name == "blocks"; }}},
      {"units in units",
       [] { return std::make_shared<NestedImpl>(); },
       [](Module& module, const at::Tensor& x) { return module.as<NestedImpl>()->forward(x); },
       {.units =
            [](const std::string& name, const Module&) {
              return name == "outer" || name == "outer.inner" || name == "last";
            }}},
  };
}

TEST(TorchPlan, CountsStatesAndSlotsOfTheTrainingToTheByte) {
  for (const Subject& subject : subjects()) {
    for (const Strategy strategy :
         {Strategy::ddp, Strategy::dp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(std::string{subject.name} + ", " + std::string{to_string(strategy)} + " on " +
                     std::to_string(ranks));
        ShardOptions options = subject.options;
        options.model.strategy = strategy;
        const TrainingPlan plan = torch::plan(
            subject.build,
            {.ranks = {.ranks = ranks}, .shard = options, .optimizer = subject.optimizer});
        std::vector<MemoryReport> planned(static_cast<std::size_t>(ranks));
        for (const PlannedRank& group : plan.ranks) {
          for (const int rank : group.ranks) {
            planned[static_cast<std::size_t>(rank)] = group.memory;
          }
        }
        run_ranks(ranks, [&](World& world) {
          auto model = torch::shard(subject.build(), world, options);
          model.optimize_with(subject.optimizer);
          for (int step = 0; step < 2; ++step) {
            for (int micro = 0; micro < options.model.accumulate; ++micro) {
              const at::Tensor x = ::torch::ones({4, 2}) * (step + micro + 1);
              model.backward(
                  model.forward([&] { return subject.forward(model.module(), x); }).pow(2).mean());
            }
            model.step();
          }
          const MemoryReport measured = world.memory().report();
          const MemoryReport& mine = planned[static_cast<std::size_t>(world.rank())];
          for (std::size_t c = 0; c < kCategories; ++c) {
            const auto category = static_cast<Category>(c);
            if (category == Category::activations) { continue; }
            EXPECT_EQ(measured.live[category], mine.at_peak[category]) << to_string(category);
          }
        });
      }
    }
  }
}

const auto build_net = [] { return Net(); };
const auto first_step = [](auto& model) {
  model.backward(model(::torch::ones({16, 2})).pow(2).mean());
};

TEST(TorchPlan, AddsMeasuredActivationsToThePeak) {
  const std::size_t activations = torch::measure_activations(build_net, first_step);
  EXPECT_GT(activations, 16U * 6 * 2 * 64 * sizeof(float));  // GELU's of six blocks
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    SCOPED_TRACE(to_string(strategy));
    const ShardOptions options{.model = {.strategy = strategy}};
    EXPECT_EQ(torch::measure_activations(build_net, first_step, options), activations);
    const TrainingPlan plan = torch::plan(
        build_net, {.ranks = {.ranks = 2}, .shard = options, .measured_activations = activations});
    EXPECT_THAT(plan.text(), HasSubstr("(activations as measured)"));
    run_ranks(2, [&](World& world) {
      auto model = torch::shard(build_net(), world, options);
      model.optimize_with(AdamW{});
      for (int step = 0; step < 2; ++step) {
        first_step(model);
        model.step();
      }
      const bool first = world.rank() < plan.ranks.front().count;
      const PlannedRank& mine = first ? plan.ranks.front() : plan.ranks.back();
      EXPECT_EQ(world.memory().report().peak_bytes, mine.memory.peak_bytes);
    });
  }
}

TEST(TorchPlan, ABudgetTakesStatesSlotsAndActivations) {
  const auto with_budget = [](std::size_t bytes, std::size_t activations) {
    return torch::plan(build_net, {.ranks = {.ranks = 2, .world = {.budget_bytes = bytes}},
                                   .shard = {.model = {.strategy = Strategy::zero3}},
                                   .measured_activations = activations});
  };
  constexpr std::size_t kActivations = 100'000;
  const std::size_t peak = with_budget(1 << 30, kActivations).ranks.front().memory.peak_bytes;
  EXPECT_EQ(with_budget(peak, kActivations).ranks.front().memory.peak_bytes, peak);
  try {
    static_cast<void>(with_budget(peak - 1, kActivations));
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("activations, as measured"), HasSubstr("optimizer")));
  }
}

TEST(TorchPlan, NeedsNoGpuToPlanOne) {
  const ShardOptions options{.model = {.strategy = Strategy::zero3}};
  const TrainingPlan cpu = torch::plan(build_net, {.ranks = {.ranks = 4}, .shard = options});
  const TrainingPlan cuda = torch::plan(
      build_net, {.ranks = {.ranks = 4,
                            .backend = {.device = DeviceKind::cuda, .comm = CommKind::nccl},
                            .world = {.device = DeviceKind::cuda}},
                  .shard = options});
  for (const Category c : {Category::parameters, Category::gradients, Category::optimizer,
                           Category::gather, Category::reduce}) {
    EXPECT_EQ(cuda.ranks.front().memory.at_peak[c], cpu.ranks.front().memory.at_peak[c])
        << to_string(c);
  }
}

// A module of 16 GiB of parameters, planned on this machine.
TEST(TorchPlan, TakesNoMemoryForTheModule) {
  const TrainingPlan plan = torch::plan(
      [] {
        ::torch::nn::Sequential net;
        for (int i = 0; i < 16; ++i) { net->push_back(::torch::nn::Linear(16384, 16384)); }
        return net;
      },
      {.ranks = {.ranks = 16}, .shard = {.model = {.strategy = Strategy::zero3}}});
  const std::size_t parameters = std::size_t{16} * (16384 * 16384 + 16384) * sizeof(float);
  EXPECT_EQ(plan.ranks.front().memory.at_peak[Category::parameters], parameters / 16);
  EXPECT_EQ(plan.ranks.front().memory.at_peak[Category::optimizer], 2 * parameters / 16);
  EXPECT_THAT(plan.text(), HasSubstr("(activations not measured)"));
}

TEST(TorchPlan, AFirstStepWithoutAPassIsRefused) {
  EXPECT_THAT(
      [] {
        try {
          static_cast<void>(torch::measure_activations(build_net, [](auto&) {}));
        } catch (const ContractError& error) { return std::string{error.what()}; }
        return std::string{"no error"};
      }(),
      HasSubstr("first_step makes no pass of the model"));
}

}  // namespace
}  // namespace tessera::torch_plan_test

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/profile/ledger.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"
#include "torch/counted_allocations.hpp"
#include "torch/small_net.hpp"

// libtorch's allocations count for the rank that computes.
namespace tessera::torch_memory_test {
namespace {

using torch_test::run_plainly;
using torch_test::RunBlock;
using torch_test::seeded;
using torch_test::SmallNet;

constexpr int kBlocks = 3;
constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kRows = 256;
constexpr std::size_t kOutput = kRows * kWidth * sizeof(float);  // of a block

std::size_t activations(World& world) {
  return world.memory().report().live[Category::activations];
}

struct Trainer {
  explicit Trainer(World& world, Strategy strategy = Strategy::zero3, std::int64_t rows = kRows,
                   RunBlock run = &run_plainly)
      : model{tessera::torch::shard(
            seeded(1, [&] { return SmallNet(kBlocks, kWidth, run); }), world,
            {.model = {.strategy = strategy, .keep_whole = KeepWhole::never}})},
        x{::torch::ones({rows, kWidth})} {
    model.optimize_with(AdamW{});
  }
  void step() {
    model.backward(model(x).pow(2).mean());
    model.step();
  }

  tessera::torch::Sharded<torch_test::SmallNetImpl> model;
  at::Tensor x;
};

// The plan of a program with its own kernels that declares the same units.
CategoryBytes planned(Strategy strategy, int rank) {
  const auto body = [&](World& world) {
    ShardedModel model{world, {.strategy = strategy}};
    std::vector<Unit> units;
    for (int i = 0; i < kBlocks; ++i) {
      units.push_back(
          model.add_unit("blocks." + std::to_string(i), {{"up.weight", {2 * kWidth, kWidth}},
                                                         {"up.bias", {2 * kWidth}},
                                                         {"down.weight", {kWidth, 2 * kWidth}},
                                                         {"down.bias", {kWidth}}}));
    }
    model.materialize(init::constant(0));
    model.optimize_with(AdamW{});
    for (const Unit unit : units) { static_cast<void>(model.forward(unit)); }
    for (int i = kBlocks - 1; i >= 0; --i) { static_cast<void>(model.backward(units[i])); }
    model.step();
  };
  const std::vector<PlannedRank> ranks = plan({.ranks = 2}, body);
  return (rank < ranks.front().count ? ranks.front() : ranks.back()).memory.at_peak;
}

class TorchMemory : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, TorchMemory,
                         ::testing::Values(Strategy::ddp, Strategy::zero2, Strategy::zero3),
                         [](const auto& name) { return std::string{to_string(name.param)}; });

TEST_P(TorchMemory, IsConstantAndAsPlannedExceptForLibtorchsMemory) {
  run_ranks(2, [&](World& world) {
    Trainer trainer{world, GetParam(), 8};
    trainer.step();
    trainer.step();
    const MemoryReport second = world.memory().report();
    for (int step = 2; step < 100; ++step) { trainer.step(); }
    const MemoryReport hundredth = world.memory().report();
    EXPECT_EQ(hundredth.peak_bytes, second.peak_bytes);
    EXPECT_EQ(hundredth.by_phase, second.by_phase);
    EXPECT_EQ(hundredth.live, second.live);

    const CategoryBytes plan = planned(GetParam(), world.rank());
    for (std::size_t c = 0; c < kCategories; ++c) {
      const auto category = static_cast<Category>(c);
      if (category == Category::activations) { continue; }
      EXPECT_EQ(hundredth.live[category], plan[category]) << to_string(category);
    }
    EXPECT_EQ(second.at_peak[Category::gather], plan[Category::gather]);
  });
}

TEST(TorchMemory, FollowsTheFormulaOfWhatBackwardNeeds) {
  run_ranks(2, [](World& world) {
    Trainer trainer{world};
    trainer.step();
    const std::size_t between_steps = activations(world);
    EXPECT_LT(between_steps, kOutput + 1024);  // the input, and the loss for the report
    {
      const at::Tensor loss = trainer.model(trainer.x).pow(2).mean();
      EXPECT_EQ(activations(world), between_steps + kBlocks * 5 * kOutput + sizeof(float));
      trainer.model.backward(loss);
    }
    EXPECT_EQ(activations(world), between_steps);
    trainer.model.step();

    const MemoryReport report = world.memory().report();
    EXPECT_GE(report.at_peak[Category::activations], kBlocks * 5 * kOutput);
    const std::vector<ProcessLedger> ledgers = gather_ledgers(world);
    EXPECT_THAT(ledgers.at(0).rows(),
                ::testing::Contains(
                    LedgerRow{"activations", static_cast<std::int64_t>(2 * activations(world))}));
  });
}

// One byte less than a phase needs. Recomputation needs the most within autograd.
TEST(TorchMemory, BeyondTheBudgetEndsAllRanksWithRankUnitAndBytes) {
  struct Case {
    trace::Phase phase;
    RunBlock run;
    const char* text;
  };
  const std::vector<Case> cases{
      {trace::Phase::forward, &run_plainly, "in forward of blocks.2"},
      {trace::Phase::backward, &torch_test::run_recomputed, "in backward of blocks.2"}};
  for (const Case& c : cases) {
    std::size_t enough = 0;
    run_ranks(2, [&](World& world) {
      Trainer trainer{world, Strategy::zero3, kRows, c.run};
      trainer.step();
      const MemoryReport report = world.memory().report();
      EXPECT_EQ(report.peak_at.phase, c.phase);
      if (world.rank() == 0) { enough = report.peak_bytes; }
    });
    const auto run = [&](std::size_t budget) {
      run_ranks(2, [&](World& world) { Trainer{world, Strategy::zero3, kRows, c.run}.step(); },
                {.budget_bytes = budget});
    };
    run(enough);
    try {
      run(enough - 1);
      ADD_FAILURE() << "no error: " << c.text;
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::StartsWith("rank "),
                                                 ::testing::HasSubstr("tensors of libtorch"),
                                                 ::testing::HasSubstr(c.text)));
    }
  }
}

TEST(TorchMemory, IsCountedUntilTheLastUseOnAnyThread) {
  std::shared_ptr<MemoryTracker> tracker;
  const auto live = [&] { return tracker->report().live[Category::activations]; };
  at::Tensor kept;
  run_ranks(1, [&](World& world) {
    tracker = world.memory().shared_from_this();
    auto outer = std::make_unique<tessera::torch::CountedAllocations>(world);
    const tessera::torch::CountedAllocations inner{world};
    kept = ::torch::empty({100});
    EXPECT_EQ(live(), 400U);
    kept.resize_({150});
    EXPECT_EQ(live(), 600U);
    const at::Tensor view = kept.view({10, 15});
    EXPECT_EQ(live(), 600U);
    outer.reset();  // not the newest

    c10::Allocator* const allocator = c10::GetCPUAllocator();
    void* const raw = allocator->raw_allocate(64);
    EXPECT_EQ(live(), 664U);
    allocator->raw_deallocate(raw);
    EXPECT_EQ(live(), 600U);
    std::thread{[] { static_cast<void>(::torch::ones({1000})); }}.join();
    EXPECT_EQ(tracker->report().peak_bytes, 1000U);  // while it was resized
  });
  EXPECT_EQ(live(), 600U);
  EXPECT_EQ(::torch::empty({100}).numel(), 100);
  EXPECT_EQ(live(), 600U);
  std::thread{[&] { kept.reset(); }}.join();
  EXPECT_EQ(live(), 0U);
}

}  // namespace
}  // namespace tessera::torch_memory_test

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <latch>
#include <thread>

#include "budget/stack.hpp"
#include "tessera/world/run.hpp"

// Communication runs while the caller computes: each scope waits for the collective that should
// overlap it. Without overlap the wait times out and the test fails.
namespace tessera::test::overlap_test {
namespace {

/// Waits until `times` collectives called `label` have finished; false after 20 seconds.
bool finishes(World& world, const std::string& label, std::ptrdiff_t times) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (std::chrono::steady_clock::now() < deadline) {
    const auto records = world.recorder()->records();
    const auto finished = std::ranges::count_if(records, [&](const trace::Record& record) {
      return record.kind == trace::Kind::collective && record.unit == label;
    });
    if (finished >= times) { return true; }
    std::this_thread::yield();
  }
  return false;
}

constexpr auto kNothing = [](int) {};

std::string name(const char* verb, int i) {
  return std::string{verb} + " block." + std::to_string(i);
}

TEST(Overlap, TheNextUnitIsGatheredWhileThisOneComputes) {
  run_ranks(3,
            [](World& world) {
              UnitStack stack{world, {.strategy = Strategy::zero3}};
              stack.forward(kNothing);  // learns the order
              stack.backward(kNothing);
              stack.model().step();
              world.recorder()->clear();
              stack.forward([&](int i) {
                if (i < 3) { EXPECT_TRUE(finishes(world, name("gather", i + 1), 1)) << i; }
              });
              stack.backward([&](int i) {
                if (i > 0) { EXPECT_TRUE(finishes(world, name("gather", i - 1), 2)) << i; }
              });
              stack.model().step();
            },
            {.trace = true});
}

TEST(Overlap, GradientsAreReducedWhileTheUnitBeforeComputes) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(3,
              [&](World& world) {
                UnitStack stack{
                    world,
                    {.strategy = strategy, .bucket_bytes = 1, .tuning = {.first_bucket_bytes = 1}}};
                stack.forward(kNothing);
                stack.backward([&](int i) {
                  if (i < 3) {
                    EXPECT_TRUE(finishes(world, name("reduce", i + 1), 1))
                        << to_string(strategy) << i;
                  }
                });
                stack.model().step();
              },
              {.trace = true});
  }
}

TEST(Overlap, ParametersOfZeroOneAndTwoComeDuringTheNextForward) {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    run_ranks(3,
              [&](World& world) {
                UnitStack stack{world, {.strategy = strategy}};
                stack.forward(kNothing);
                stack.backward(kNothing);
                world.recorder()->clear();
                stack.model().step();
                stack.forward([&](int i) {
                  if (i < 3) { EXPECT_TRUE(finishes(world, name("gather", i + 1), 1)) << i; }
                });
              },
              {.trace = true});
  }
}

// In the order of declaration, the first unit in use would be gathered last.
TEST(Overlap, ParametersAreGatheredInTheOrderOfTheForward) {
  for (const Strategy strategy : {Strategy::dp, Strategy::zero1, Strategy::zero2}) {
    run_ranks(2,
              [&](World& world) {
                ShardedModel model{world, {.strategy = strategy}};
                const Unit last = model.add_unit("last", {{"weight", {50}}});
                const Unit first = model.add_unit("first", {{"weight", {50}}});
                model.materialize(init::normal(1, 0.1F));
                model.optimize_with(AdamW{});
                (void)model.forward(first);
                (void)model.forward(last);
                (void)model.backward(last);
                (void)model.backward(first);
                world.recorder()->clear();
                model.step();
                (void)model.forward(first);
                std::vector<std::string> sent;
                for (const trace::Record& record : world.recorder()->records()) {
                  const bool sends = record.what == "gather" || record.what == "broadcast";
                  if (record.kind == trace::Kind::issue && sends) { sent.push_back(record.unit); }
                }
                EXPECT_EQ(sent, (std::vector<std::string>{"first", "last"})) << to_string(strategy);
              },
              {.trace = true});
  }
}

// Rank 1 opens a unit, and so joins the next unit's gather, only once rank 0 is inside that unit:
// rank 0's gather cannot end before its computation begins.
TEST(Overlap, TheTraceShowsTheGatherInsideTheSpanOfTheUnitBefore) {
  std::array<std::latch, 4> inside{std::latch{1}, std::latch{1}, std::latch{1}, std::latch{1}};
  run_ranks(
      2,
      [&](World& world) {
        UnitStack stack{world, {.strategy = Strategy::zero3}};
        stack.forward(kNothing);
        stack.backward(kNothing);
        stack.model().step();
        world.recorder()->clear();
        stack.forward([&](int i) {
          if (world.rank() == 1) {
            // Rank 1 opens unit i + 1 next; it joined unit 1's gather when it opened unit 0.
            if (i < 2) { inside[static_cast<std::size_t>(i) + 1].wait(); }
            return;
          }
          inside[static_cast<std::size_t>(i)].count_down();
          if (i < 3) { EXPECT_TRUE(finishes(world, name("gather", i + 1), 1)); }
        });
        stack.backward(kNothing);
        stack.model().step();
        if (world.rank() == 1) { return; }

        const auto records = world.recorder()->records();
        const auto span = [&](trace::Kind kind, const std::string& what, const std::string& unit) {
          return std::ranges::find_if(records, [&](const trace::Record& r) {
            return r.kind == kind && (what.empty() || r.what == what) && r.unit == unit;
          });
        };
        for (int i = 1; i < 3; ++i) {
          const auto compute = span(trace::Kind::compute, "forward", "block." + std::to_string(i));
          const auto gather = span(trace::Kind::collective, "", name("gather", i + 1));
          ASSERT_NE(compute, records.end());
          ASSERT_NE(gather, records.end());
          EXPECT_GT(gather->end_ns, compute->begin_ns);
          EXPECT_LT(gather->end_ns, compute->end_ns);
          EXPECT_NE(gather->thread, compute->thread);
        }
      },
      {.trace = true});
}

}  // namespace
}  // namespace tessera::test::overlap_test

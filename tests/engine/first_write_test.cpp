// GradientInit::first_write: a gradient's first kernel overwrites it; nothing reads it earlier.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/base/error.hpp"
#include "tessera/trace/work_log.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::first_write_test {
namespace {

using kernels::Write;
using ::testing::HasSubstr;

constexpr std::int64_t kElems = 15;
constexpr std::int64_t kRoom = 40;

std::vector<ParameterSpec> specs() {
  return {{.name = "table", .shape = {5, 3}, .room = kRoom},
          {.name = "added", .shape = {7}},
          {.name = "unused", .shape = {9}},
          {.name = "sometimes", .shape = {3}}};
}

/// Enqueues a kernel that writes a whole gradient. No value is exact in 16 bits.
void write_all(const BackwardScope& scope, const char* name, std::int64_t elems, float seed) {
  const Write how = scope.write(name);
  float* const to = scope.grad(name);
  device::enqueue(scope.stream(), [=] {
    for (std::int64_t i = 0; i < elems; ++i) {
      const float value = std::sin(seed + static_cast<float>(i));
      to[i] = how == Write::add ? to[i] + value : value;
    }
  });
}

/// Two scopes write the table, as a head and an embedding do. One of the two units has it as an
/// alias. Some micro-batches skip a gradient.
void micro_batch(ShardedModel& model, Unit unit, Unit tied, int number) {
  const float seed = static_cast<float>(3 * number + model.world().rank());
  {
    const auto first = model.forward(unit);
    const auto second = model.forward(tied);
  }
  {
    const auto scope = model.backward(tied);
    write_all(scope, "w", kElems, seed);
  }
  const auto scope = model.backward(unit);
  write_all(scope, "table", kElems, seed + 0.5F);
  float* const added = scope.grad("added");  // written by a kernel that can only add
  device::enqueue(scope.stream(), [=] { added[number] += seed + 0.25F; });
  if (number == 1) { write_all(scope, "sometimes", 3, seed); }
}

struct Case {
  Strategy strategy;
  int ranks;
  AccumulateMode mode;
  Checks checks;
};

class FirstWrite : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, FirstWrite, ::testing::ValuesIn(all_strategies()),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

using Exported = std::map<std::string, std::vector<float>>;

/// Parameters after three steps whose gradients initially hold `content`.
Exported trained(const Case& of, GradientInit content) {
  Exported all;
  run_ranks(of.ranks,
            [&](World& world) {
              ShardedModel model{world,
                                 {.strategy = of.strategy,
                                  .shard_group = half_of(world.size(), of.strategy),
                                  .accumulate = 2,
                                  .checks = of.checks,
                                  .accumulate_mode = of.mode}};
              const Unit unit =
                  model.add_unit("u", specs(), {.kind = UnitKind::root, .gradients = content});
              const Unit tied = model.add_unit(
                  "tied", {{.name = "w", .shape = {5, 3}, .tied_to = TiedTo{"u", "table"}}},
                  {.gradients = content});
              const Unit never = model.add_unit("never", {{"w", {4}}}, {.gradients = content});
              static_cast<void>(never);
              model.materialize(init::constant(1.0F));
              model.optimize_with(AdamW{.lr = 0.1F}, {.clip_norm = 1.0F});
              for (int step = 0; step < 3; ++step) {
                for (int number = 0; number < 2; ++number) {
                  micro_batch(model, unit, tied, number);
                }
                model.step();
                EXPECT_TRUE(std::isfinite(model.report().grad_norm));
              }
              auto values = exported(model, StateTensor::parameters);
              if (world.rank() == 0) { all = std::move(values); }
            },
            {.testing = {.poison = SlotPoison::nan}});
  return all;
}

TEST_P(FirstWrite, TrainsAsGradientsThatAreZeroed) {
  for (const int ranks : {1, 2}) {
    for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
      for (const Checks checks : {Checks::off, Checks::memory}) {
        const Case of{GetParam(), ranks, mode, checks};
        EXPECT_EQ(trained(of, GradientInit::first_write), trained(of, GradientInit::zeroed))
            << ranks << " ranks, mode " << static_cast<int>(mode) << ", checks "
            << static_cast<int>(checks);
      }
    }
  }
}

/// Bytes that a rank fills in a backward scope.
double filled_bytes(GradientInit content) {
  double bytes = 0;
  WorldOptions logged;
  logged.log_work = true;
  simulate_rank(
      {.rank = 0, .ranks = 1, .backend = {}},
      [&](World& world) {
        ShardedModel model{world, {.strategy = Strategy::zero3}};
        const Unit unit =
            model.add_unit("u", {{"written", {1024}}, {"added", {64}}}, {.gradients = content});
        model.materialize(init::constant(1.0F));
        const std::size_t before = world.work_log()->kernels().size();
        (void)model.forward(unit);
        {
          const auto scope = model.backward(unit);
          (void)scope.write("written");
          (void)scope.grad("written");
          (void)scope.grad("added");
        }
        const auto& kernels = world.work_log()->kernels();
        for (std::size_t k = before; k < kernels.size(); ++k) {
          if (kernels[k].name == "fill") { bytes += kernels[k].bytes; }
        }
      },
      logged);
  return bytes;
}

TEST(FirstWriteTraffic, ShrinksByTheBytesWrittenFirst) {
  EXPECT_EQ(filled_bytes(GradientInit::zeroed), 4 * (1024 + 64));
  EXPECT_EQ(filled_bytes(GradientInit::first_write), 4 * 64);
}

/// The message with which a backward scope of a first_write unit refuses `body(scope)`.
std::string refusal(const std::function<void(BackwardScope&)>& body) {
  std::string what;
  run_ranks(1, [&](World& world) {
    ShardedModel model{world};
    const Unit unit = model.add_unit("u", {{"w", {3}}}, {.gradients = GradientInit::first_write});
    model.materialize(init::constant(1.0F));
    (void)model.forward(unit);
    auto scope = model.backward(unit);
    try {
      body(scope);
    } catch (const ContractError& error) { what = error.what(); }
  });
  return what;
}

TEST(FirstWriteMisuse, IsRefusedByName) {
  EXPECT_THAT(refusal([](BackwardScope& scope) {
                (void)scope.write("w");
                (void)scope.write("w");
              }),
              HasSubstr("write of 'u.w' was called twice without taking the gradient"));
  EXPECT_THAT(refusal([](BackwardScope& scope) {
                (void)scope.write("w");
                scope.close();
              }),
              HasSubstr("unit 'u': write of 'u.w' was called, but its gradient was not taken"));
  EXPECT_EQ(refusal([](BackwardScope& scope) {
              EXPECT_EQ(scope.write("w"), Write::overwrite);
              (void)scope.grad("w");
              EXPECT_EQ(scope.write("w"), Write::add);
              (void)scope.grad("w");
              scope.close();
            }),
            "");
}

// A closing scope does not touch a gradient that another open scope will write.
TEST(FirstWriteMisuse, NamesTheScopeThatDoesNotTakeASharedGradient) {
  run_ranks(1, [&](World& world) {
    ShardedModel model{world};
    const Unit owner =
        model.add_unit("owner", {{"w", {3}}, {"v", {3}}}, {.gradients = GradientInit::first_write});
    const Unit tied =
        model.add_unit("tied", {{.name = "w", .shape = {3}, .tied_to = TiedTo{"owner", "w"}}});
    model.materialize(init::constant(1.0F));
    for (const Unit unit : {owner, tied}) { (void)model.forward(unit); }
    BackwardScope open = model.backward(owner);
    EXPECT_EQ(open.write("w"), Write::overwrite);
    EXPECT_NO_THROW(model.backward(tied).close());
    try {
      open.close();
      ADD_FAILURE() << "the gradient was not taken";
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(), HasSubstr("unit 'owner': write of 'owner.w' was called"));
    }
  });
}

TEST(FirstWriteMisuse, OtherGradientsSayHowToBeWritten) {
  run_ranks(1, [&](World& world) {
    ShardedModel model{world};
    const Unit zeroed = model.add_unit("a", {{"w", {3}}});
    const Unit unzeroed = model.add_unit("b", {{"w", {3}}}, {.gradients = GradientInit::unzeroed});
    model.materialize(init::constant(1.0F));
    for (const Unit unit : {zeroed, unzeroed}) { (void)model.forward(unit); }
    for (const Unit unit : {zeroed, unzeroed}) {
      const auto scope = model.backward(unit);
      EXPECT_EQ(scope.write("w"), unit == zeroed ? Write::add : Write::overwrite);
      float* const w = scope.grad("w");
      device::enqueue(scope.stream(), [=] { w[0] = w[1] = w[2] = 0.0F; });
    }
  });
}

}  // namespace
}  // namespace tessera::test::first_write_test

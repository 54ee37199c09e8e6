// Room behind a parameter: what kernels may read and write there, and where it never appears.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::room_test {
namespace {

constexpr std::int64_t kElems = 15;
constexpr std::int64_t kRoom = 200;

class Room : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Room, ::testing::ValuesIn(all_strategies()),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

ModelOptions options_of(Strategy strategy) {
  ModelOptions options;
  options.strategy = strategy;
  options.shard_group = groups_of_one(strategy);
  return options;
}

std::vector<ParameterSpec> specs() {
  return {{.name = "table", .shape = {5, 3}, .room = kRoom}, {.name = "bias", .shape = {3}}};
}

void filled(const ParameterInfo& /*parameter*/, std::int64_t first, std::span<float> out) {
  std::iota(out.begin(), out.end(), 1.0F + static_cast<float>(first));
}

/// Whether the whole room is zero.
template <class T>
bool is_empty(const T* table) {
  return std::all_of(table + kElems, table + kRoom, [](T value) { return value == T{}; });
}

// A product of whole rows adds or writes zeros in the room.
void pass(ShardedModel& model, Unit unit, GradientInit content) {
  {
    const auto scope = model.forward(unit);
    const float* const table = scope["table"];
    device::enqueue(scope.stream(), [=] { EXPECT_TRUE(is_empty(table)); });
  }
  const auto scope = model.backward(unit);
  float* const table = scope.grad("table");
  float* const bias = scope.grad("bias");
  const bool add = content == GradientInit::zeroed;
  device::enqueue(scope.stream(), [=] {
    if (add) { EXPECT_TRUE(is_empty(table)); }
    for (std::int64_t i = 0; i < kRoom; ++i) {
      const float value = i < kElems ? 0.5F : 0.0F;
      table[i] = add ? table[i] + value : value;
    }
    for (std::int64_t i = 0; i < 3; ++i) { bias[i] = 0.25F; }
  });
}

TEST_P(Room, HoldsZerosThroughoutATraining) {
  for (const GradientInit content : {GradientInit::zeroed, GradientInit::unzeroed}) {
    run_ranks(3,
              [&](World& world) {
                ShardedModel model{world, options_of(GetParam())};
                const Unit unit = model.add_unit("u", specs(), {.gradients = content});
                model.materialize(filled);
                model.optimize_with(AdamW{.lr = 0.1F, .weight_decay = 0.1F}, {.clip_norm = 1.0F});
                for (int step = 0; step < 4; ++step) {
                  pass(model, unit, content);
                  model.step();
                }
                // Three equal gradients are added and divided by 3; in 16 bits the sum is rounded.
                const double norm = std::sqrt(15 * 0.25 + 3 * 0.0625);
                EXPECT_NEAR(model.report().grad_norm, norm, 3 * unit_roundoff(DType::fp32) * norm);
              },
              {.testing = {.poison = SlotPoison::nan}});
  }
}

TEST_P(Room, IsNotExportedAndNotCountedAsAParameter) {
  run_ranks(2, [&](World& world) {
    ShardedModel model{world, options_of(GetParam())};
    const Unit unit = model.add_unit("u", specs());
    std::map<std::string, std::int64_t> asked;
    model.materialize(
        [&](const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
          std::int64_t& end = asked[parameter.name];
          end = std::max(end, first + std::ssize(out));
          filled(parameter, first, out);
        });
    for (const auto& [name, elems] : asked) { EXPECT_LE(elems, name == "table" ? kElems : 3); }
    EXPECT_EQ(model.layout(unit).parameter_elems(), 18);
    const auto values = exported(model, StateTensor::parameters);
    if (world.rank() != 0) { return; }
    EXPECT_EQ(std::ssize(values.at("u.table")), kElems);
    EXPECT_EQ(values.at("u.table").back(), 15.0F);
    EXPECT_EQ(values.at("u.bias"), (std::vector<float>{1.0F, 2.0F, 3.0F}));
  });
}

TEST_P(Room, TakesMemory) {
  run_ranks(2, [&](World& world) {
    const auto bytes = [&](std::int64_t room) {
      ShardedModel model{world, options_of(GetParam())};
      (void)model.add_unit("u", {{.name = "table", .shape = {5, 3}, .room = room}});
      model.materialize(filled);
      model.optimize_with(AdamW{});
      return model.state_bytes().parameters;
    };
    const std::size_t with = bytes(1024), without = bytes(0);
    if (without > 0) { EXPECT_GT(with, without); }
  });
}

TEST(RoomOfATie, IsItsOwners) {
  run_ranks(2, [&](World& world) {
    ShardedModel model{world, options_of(Strategy::zero3)};
    const Unit owner = model.add_unit("root", {{.name = "table", .shape = {5, 3}, .room = kRoom}});
    const Unit head = model.add_unit(
        "head", {{.name = "w", .shape = {5, 3}, .tied_to = TiedTo{"root", "table"}}});
    model.materialize(filled);
    model.optimize_with(SGD{});
    { const auto scope = model.forward(owner); }
    const auto scope = model.forward(head);
    const float* const w = scope["w"];
    device::enqueue(scope.stream(), [=] {
      EXPECT_EQ(w[kElems - 1], 15.0F);
      EXPECT_TRUE(is_empty(w));
    });
  });
}

}  // namespace
}  // namespace tessera::test::room_test

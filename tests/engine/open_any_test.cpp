// Scopes that nobody counts: a program that learns from autograd which unit is next opens any unit,
// in any order and any number of times, and may drop what it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::open_any_test {
namespace {

using ::testing::HasSubstr;

constexpr int kUnits = 5;

int elems_of(int unit) {
  return 3 + 4 * unit;  // odd: shards cut parameters
}

struct Net {
  explicit Net(World& world, const ModelOptions& options) : model{world, options} {
    for (int u = 0; u < kUnits; ++u) {
      units.push_back(model.add_unit("u" + std::to_string(u), {{"w", {elems_of(u)}}},
                                     {.kind = u == 0 ? UnitKind::root : UnitKind::block}));
    }
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{.lr = 1.0F, .momentum = 0.0F});
  }
  /// Adds `value` to the gradient of unit `u`.
  void add(int u, float value) {
    const OpenScope scope = model.open_any(units[static_cast<std::size_t>(u)], /*backward=*/true);
    const Tensor gradient = scope.grad("w");
    for (int i = 0; i < elems_of(u); ++i) { gradient[i] += value; }
  }
  void look(int u) {
    const OpenScope scope = model.open_any(units[static_cast<std::size_t>(u)], /*backward=*/false);
    ASSERT_EQ(scope["w"][0], scope["w"][elems_of(u) - 1]);
  }

  ShardedModel model;
  std::vector<Unit> units;
};

/// What a program does in a step: the same calls on all ranks.
struct Program {
  enum class What : std::uint8_t { look, add, discard, evaluate, export_state };
  struct Call {
    What what;
    int unit;
    int value;
  };
  std::vector<Call> calls;
  std::map<int, double> sums;  // by unit: the mean over ranks of what is left

  Program(unsigned seed, int ranks) {
    std::minstd_rand random{seed};
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int i = 0; i < 40; ++i) {
      const int kind = below(20);
      const What what = kind < 8    ? What::look
                        : kind < 17 ? What::add
                        : kind < 18 ? What::discard
                        : kind < 19 ? What::evaluate
                                    : What::export_state;
      calls.push_back({what, below(kUnits), below(9) - 4});
      if (what == What::discard) { sums.clear(); }
      // Ranks add value + rank: integers, exact in any order.
      if (what == What::add) { sums[calls.back().unit] += calls.back().value + (ranks - 1) / 2.0; }
    }
    calls.push_back({What::add, 1, 2});  // a step needs a gradient
    sums[1] += 2 + (ranks - 1) / 2.0;
  }
  void run(Net& net, int rank) const {
    for (const Call& call : calls) {
      switch (call.what) {
        case What::look:
          net.look(call.unit);
          break;
        case What::add:
          net.add(call.unit, static_cast<float>(call.value + rank));
          break;
        case What::discard:
          net.model.discard();
          break;
        case What::evaluate: {
          const Evaluation evaluation = net.model.evaluate();
          (void)net.model.forward(net.units[static_cast<std::size_t>(call.unit)]);
          break;
        }
        case What::export_state:
          (void)exported(net.model, StateTensor::parameters);
          break;
      }
    }
  }
};

class OpenAny : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OpenAny, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(OpenAny, StepsHaveTheSumOfWhatIsLeftInWhateverOrderItCame) {
  const int ranks = GetParam();
  for (const Strategy strategy : all_strategies()) {
    for (const int accumulate : {1, 2}) {
      run_ranks(ranks, [&](World& world) {
        Net net{world,
                {.strategy = strategy,
                 .shard_group = half_of(world.size(), strategy),
                 .accumulate = accumulate,
                 .accumulate_mode = AccumulateMode::every}};
        std::map<int, double> values;
        for (int u = 0; u < kUnits; ++u) { values[u] = 1.0; }
        for (unsigned step = 0; step < 4; ++step) {
          const Program program{10 * step + 1, ranks};
          program.run(net, world.rank());
          net.model.step();
          for (const auto& [u, sum] : program.sums) { values[u] -= sum / accumulate; }
        }
        const auto all = exported(net.model, StateTensor::parameters);
        for (const auto& [u, value] : values) {
          const std::string name = "u" + std::to_string(u);
          for (const float found : all.at(name + ".w")) {
            EXPECT_EQ(found, value) << name << " under " << to_string(strategy);
          }
        }
      });
    }
  }
}

struct Mistake {
  const char* name;
  std::function<void(Net&, int rank)> make;
  const char* says;
  ModelOptions options = {.strategy = Strategy::zero3};
};

TEST(OpenAnyMistakes, AreRefusedWithWhatToDo) {
  const std::vector<Mistake> mistakes{
      {"a counted scope in such a step",
       [](Net& net, int) {
         net.look(1);
         (void)net.model.forward(net.units[2]);
       },
       "forward of unit 'u2': the step has scopes of open_any, which are not counted"},
      {"such a scope in a counted step",
       [](Net& net, int) {
         (void)net.model.forward(net.units[2]);
         net.look(1);
       },
       "open_any of unit 'u1': the step has scopes that are counted"},
      {"a unit that is open",
       [](Net& net, int) {
         const OpenScope scope = net.model.open_any(net.units[1], false);
         (void)net.model.open_any(net.units[1], true);
       },
       "'u1'"},
      {"discard within a scope",
       [](Net& net, int) {
         const OpenScope scope = net.model.open_any(net.units[1], false);
         net.model.discard();
       },
       "discard"},
      {"a step within a scope",
       [](Net& net, int) {
         net.add(2, 1.0F);
         const OpenScope scope = net.model.open_any(net.units[1], false);
         net.model.step();
       },
       "step"},
      {"one rank discards",
       [](Net& net, int rank) {
         net.add(1, 1.0F);
         if (rank == 1) { net.model.discard(); }
         net.add(2, 1.0F);
         net.model.step();
       },
       "ranks disagree"},
      {"ranks open other units",
       [](Net& net, int rank) {
         net.look(rank + 1);
         net.look(3);
       },
       "rank"},
      {"checks", [](Net& net, int) { net.look(1); }, "set it to off", {.checks = Checks::strict}},
  };
  for (const Mistake& mistake : mistakes) {
    try {
      run_ranks(2, [&](World& world) {
        Net net{world, mistake.options};
        mistake.make(net, world.rank());
      });
      ADD_FAILURE() << mistake.name << " is not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(mistake.says)) << mistake.name;
    }
  }
}

}  // namespace
}  // namespace tessera::test::open_any_test

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/planned_jobs.hpp"
#include "support/toy_model.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"

// Units of unequal sizes, which share several rings of slots: the bits are those of ddp, and what
// is held is what was planned.
namespace tessera::test::unequal_units_test {
namespace {

/// Units, and the order in which a forward pass uses them.
struct Network {
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> order;
  bool declared = false;
};

/// Sizes of a few classes or none, roots left out; every second network uses units again.
Network random_network(std::uint32_t seed) {
  std::mt19937 random{seed};
  Network net;
  const std::size_t count = 3 + random() % 6;
  for (std::size_t u = 0; u < count; ++u) {
    net.sizes.push_back(1 + static_cast<std::int64_t>(random() % (seed % 3 == 0 ? 4000 : 300)));
    net.order.push_back(u);
  }
  if (seed % 3 == 1) { net.sizes[random() % count] = 9000; }
  std::ranges::shuffle(net.order, random);
  net.declared = seed % 2 == 0;
  for (std::size_t again = 0; net.declared && again < 3; ++again) {
    net.order.push_back(random() % count);
  }
  return net;
}

/// Declares the network and trains it for some steps. Every kernel is enqueued, so that only events
/// order the work. A unit's gradient and output depend on its parameters: stale ones would show.
void train(World& world, const Network& net, const ModelOptions& options, ShardedModel& model) {
  std::vector<Unit> units;
  for (std::size_t u = 0; u < net.sizes.size(); ++u) {
    units.push_back(model.add_unit("u" + std::to_string(u), {{"w", {net.sizes[u]}}}));
  }
  std::vector<Unit> forward;
  for (const std::size_t u : net.order) { forward.push_back(units[u]); }
  if (net.declared) { model.declare_order(forward); }
  model.materialize(init::normal(7, 0.5F));
  model.optimize_with(SGD{.lr = 0.1F, .momentum = 0.9F});
  std::vector<float> carried(2, 1.0F);
  float* const x = carried.data();
  std::vector<const void*> address(units.size(), nullptr);
  const auto work = [&](const Scope& scope, auto task) {
    if (world.device().computes()) { device::enqueue(scope.stream(), std::move(task)); }
  };
  const auto values = [&](const Scope& scope, std::size_t u) {
    const auto* const at = static_cast<const float*>(scope["w"]);
    const Unit unit = units[u];
    if (model.stays_in_place(unit, StateTensor::parameters)) {
      EXPECT_TRUE(address[u] == nullptr || address[u] == at) << "unit " << u << " has moved";
      address[u] = at;
    }
    return at;
  };
  for (int step = 0; step < 4; ++step) {
    for (int micro = 0; micro < options.accumulate; ++micro) {
      for (const std::size_t u : net.order) {
        const auto p = model.forward(units[u]);
        work(p, [w = values(p, u), n = net.sizes[u], x] { x[0] = 0.5F * x[0] + w[n - 1]; });
      }
      for (std::size_t i = net.order.size(); i-- > 0;) {
        const std::size_t u = net.order[i];
        const auto g = model.backward(units[u]);
        work(g, [w = values(g, u), n = net.sizes[u], x, to = static_cast<float*>(g.grad("w"))] {
          for (std::int64_t e = 0; e < n; ++e) { to[e] += 0.1F * x[0] + w[e]; }
        });
      }
    }
    model.step();
  }
  world.compute_stream().wait();  // `carried` ends here
}

struct Outcome {
  std::map<std::string, std::vector<float>> parameters;
  std::vector<MemoryReport> memory;  // by rank
};

Outcome run(int ranks, const Network& net, const ModelOptions& options, std::uint64_t seed) {
  Outcome outcome;
  outcome.memory.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks,
            [&](World& world) {
              ShardedModel model{world, options};
              train(world, net, options, model);
              outcome.memory[static_cast<std::size_t>(world.rank())] = world.memory().report();
              auto all = exported(model, StateTensor::parameters);
              if (world.rank() == 0) { outcome.parameters = std::move(all); }
            },
            {.testing = {.poison = SlotPoison::nan,
                         .delays = DelayInjection{seed, std::chrono::microseconds{40}},
                         .compute_stream = ComputeStream::worker}});
  return outcome;
}

/// The same counts as a plan has them, by rank.
std::vector<MemoryReport> planned(int ranks, const Network& net, const ModelOptions& options) {
  std::map<int, MemoryReport> counted;  // by the rank that ran: rank 0, and one for the others
  static_cast<void>(plan({.ranks = ranks}, [&](World& world) {
    ShardedModel model{world, options};
    train(world, net, options, model);
    counted[world.rank()] = world.memory().report();
  }));
  std::vector<MemoryReport> memory(static_cast<std::size_t>(ranks), counted.rbegin()->second);
  memory.front() = counted.at(0);
  return memory;
}

class UnequalUnits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UnequalUnits, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(UnequalUnits, TrainWithTheBitsOfDdpInTheMemoryThatWasPlanned) {
  const int ranks = GetParam();
  for (std::uint32_t seed = 1; seed <= (repeats() ? 3U : 12U); ++seed) {
    const Network net = random_network(seed);
    const int accumulate = seed % 4 == 0 ? 2 : 1;
    const AccumulateMode mode = seed % 8 == 0 ? AccumulateMode::deferred : AccumulateMode::every;
    const Outcome expected =
        run(ranks, net, {.accumulate = accumulate, .accumulate_mode = mode}, seed);
    for (const Strategy strategy : {Strategy::zero2, Strategy::zero3, Strategy::hybrid}) {
      for (int prefetch = 0; prefetch <= (strategy == Strategy::zero2 ? 0 : 3); ++prefetch) {
        ModelOptions options{.strategy = strategy,
                             .shard_group = groups_of_one(strategy),
                             .accumulate = accumulate,
                             .prefetch = strategy == Strategy::zero2 ? 1 : prefetch,
                             .accumulate_mode = mode};
        options.keep_whole = prefetch % 2 == static_cast<int>(seed % 2) ? KeepWhole::where_smaller
                                                                        : KeepWhole::never;
        SCOPED_TRACE(std::to_string(seed) + ", " + text_of(options) + ", prefetch " +
                     std::to_string(prefetch));
        const Outcome outcome = run(ranks, net, options, seed);
        EXPECT_EQ(outcome.parameters, expected.parameters);
        const std::vector<MemoryReport> plans = planned(ranks, net, options);
        for (std::size_t rank = 0; rank < plans.size(); ++rank) {
          EXPECT_EQ(difference(plans[rank], outcome.memory[rank]), "") << "rank " << rank;
        }
      }
    }
  }
}

// One ring of the largest size would take 3 and 2 times 32,768 bytes in the second case.
TEST(RingsOfSlots, AreSizedByTheUnitsThatShareThem) {
  const auto slots = [](const std::vector<std::int64_t>& sizes, const ModelOptions& options) {
    CategoryBytes live;
    run_ranks(2, [&](World& world) {
      ShardedModel model{world, options};
      for (std::size_t u = 0; u < sizes.size(); ++u) {
        (void)model.add_unit("u" + std::to_string(u), {{"w", {sizes[u]}}});
      }
      model.materialize(init::constant(1.0F));
      if (world.rank() == 0) { live = world.memory().report().live; }
    });
    return std::pair{live[Category::gather], live[Category::reduce]};
  };
  using Pair = std::pair<std::size_t, std::size_t>;
  const ModelOptions zero3{.strategy = Strategy::zero3, .prefetch = 2};
  EXPECT_EQ(slots({1024, 1024, 1024, 1024}, zero3), (Pair{3 * 4096U, 2 * 4096U}));
  EXPECT_EQ(slots({128, 8192, 128, 128, 128}, zero3),
            (Pair{3 * 512U + 32'768U, 2 * 512U + 32'768U}));
  EXPECT_EQ(slots({128, 8192, 128, 128, 128}, {.strategy = Strategy::zero2}),
            (Pair{0U, 2 * 512U + 32'768U}));
}

}  // namespace
}  // namespace tessera::test::unequal_units_test

// A rank is lost at a random moment while its peers are in collectives. Its buffers are on the heap
// and die with it, so under address sanitizer the test also shows that no peer reads them
// afterwards.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "support/rank_job.hpp"
#include "support/rank_values.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::rank_failure_test {
namespace {

using test::HostTensor;
using test::QuiesceAtExit;

constexpr int kRanks = 4;
constexpr int kSteps = 20;
constexpr std::int64_t kPartElems = 20'000;

/// Where the failing rank throws, drawn for each round.
struct Moment {
  int rank;
  int step;
  int point;

  explicit Moment(std::uint32_t seed) {
    std::mt19937 random{seed};
    rank = static_cast<int>(random() % kRanks);
    step = static_cast<int>(random() % kSteps);
    point = static_cast<int>(random() % 4);
  }
  void reached(const World& world, int at_step, int at_point) const {
    if (world.rank() == rank && at_step == step && at_point == point) {
      throw FormatError{"lost at step " + std::to_string(step)};
    }
  }
};

/// Keeps gathers and reductions in flight on both channels. Creates and destroys buffers in each
/// step.
void work(World& world, const Moment& moment) {
  const Channel gather = world.gather_channel();
  const Channel reduce = world.reduce_channel();
  for (int step = 0; step < kSteps; ++step) {
    HostTensor shard{DType::fp32, kPartElems};
    HostTensor full{DType::fp32, kPartElems * kRanks};
    HostTensor gradient{DType::fp32, kPartElems * kRanks};
    HostTensor norm{DType::fp64, 1};
    const QuiesceAtExit guard{world};

    moment.reached(world, step, 0);
    gather.communicator.submit(Batch{"gather"}.all_gather(shard.view(), full.view()),
                               gather.stream);
    moment.reached(world, step, 1);
    reduce.communicator.submit(Batch{"reduce"}.all_reduce(gradient.view()), reduce.stream);
    reduce.communicator.submit(Batch{"norm"}.all_reduce(norm.view()), reduce.stream);
    moment.reached(world, step, 2);
    gather.stream.wait();
    moment.reached(world, step, 3);
    reduce.stream.wait();
    if (step % 5 == 0) { world.barrier(); }
  }
}

void lose_a_rank(std::uint32_t seed, const WorldOptions& options) {
  const Moment moment{seed};
  SCOPED_TRACE("seed " + std::to_string(seed) + ": rank " + std::to_string(moment.rank) +
               ", step " + std::to_string(moment.step) + ", point " + std::to_string(moment.point));
  const auto begin = std::chrono::steady_clock::now();
  try {
    run_ranks(kRanks, [&](World& world) { work(world, moment); }, options);
    ADD_FAILURE() << "the loss was not noticed";
  } catch (const FormatError& error) {
    EXPECT_EQ(error.what(), "rank " + std::to_string(moment.rank) + ": lost at step " +
                                std::to_string(moment.step));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
}

TEST(RankFailure, LosingARankAtAnyMomentFreesTheOthersAndNamesTheCause) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) { lose_a_rank(seed, {}); }
}

TEST(RankFailure, LosingARankDuringDelayedCollectivesFreesTheOthers) {
  WorldOptions options;
  options.testing.delays = DelayInjection{.seed = 3, .longest = std::chrono::microseconds{500}};
  for (std::uint32_t seed = 100; seed < 120; ++seed) { lose_a_rank(seed, options); }
}

TEST(RankFailure, SeveralRanksMayFailAtOnce) {
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(run_ranks(kRanks,
                           [&](World& world) {
                             HostTensor data{DType::fp32, kPartElems};
                             const QuiesceAtExit guard{world};
                             const Channel reduce = world.reduce_channel();
                             reduce.communicator.submit(Batch{"r"}.all_reduce(data.view()),
                                                        reduce.stream);
                             if (world.rank() % 2 == round % 2) { throw FormatError{"lost"}; }
                             reduce.stream.wait();
                             world.barrier();
                           }),
                 FormatError);
  }
}

}  // namespace
}  // namespace tessera::rank_failure_test

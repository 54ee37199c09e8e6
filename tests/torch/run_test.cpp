// tessera::torch::run: a program of libtorch on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "examples/torch/adamw.hpp"
#include "support/variable.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/torch.hpp"
#include "tessera/world/launch.hpp"
#include "torch/rank_random.hpp"
#include "torch/small_net.hpp"

namespace tessera::torch_run_test {
namespace {

using tessera::torch::RandomNumbers;
using tessera::torch::RunOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Standard output and standard error of a call, and its result.
struct Said {
  int status;
  std::string out;
  std::string error;
};

template <class Call>
Said said(const Call& call) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = call();
  return {status, ::testing::internal::GetCapturedStdout(),
          ::testing::internal::GetCapturedStderr()};
}

at::Tensor with_dropout(const torch_test::BlockFunction& block, const at::Tensor& x) {
  return ::torch::dropout(block(x), 0.3, true);
}

constexpr std::int64_t kWidth = 6;

// A whole program: initial values, noise as input, dropout, a shuffle.
struct Drawn {
  std::vector<at::Tensor> built;
  std::vector<double> losses;
  at::Tensor noise;
  at::Tensor order;
};

std::vector<Drawn> drawn(int ranks, const RunOptions& options) {
  std::vector<Drawn> all(static_cast<std::size_t>(ranks));
  RunOptions with_ranks = options;
  with_ranks.ranks = ranks;
  const int status = tessera::torch::run(
      [] { return torch_test::SmallNet(2, kWidth, &with_dropout); },
      [&](World& world, torch_test::SmallNet& net) {
        Drawn& mine = all[static_cast<std::size_t>(world.rank())];
        for (const at::Tensor& parameter : net->parameters()) {
          mine.built.push_back(parameter.detach().clone());
        }
        auto model = tessera::torch::shard(net, world, {.model = {.strategy = Strategy::zero3}});
        model.optimize_with(AdamW{.lr = 0.01F});
        for (int step = 0; step < 3; ++step) {
          mine.noise = ::torch::randn({4, kWidth});
          const at::Tensor loss = model(mine.noise).pow(2).mean();
          mine.losses.push_back(loss.item<double>());
          model.backward(loss);
          model.step();
          mine.order = ::torch::randperm(9);
        }
      },
      with_ranks);
  EXPECT_EQ(status, 0);
  return all;
}

bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) { same = a[i].equal(b[i]); }
  return same;
}

// On one rank everything is what the plain program draws, also after numbers drawn before `run`.
TEST(TorchRun, OnOneRankDrawsWhatThePlainProgramDraws) {
  ::torch::manual_seed(3);
  const at::Tensor data = ::torch::randn({7});
  torch_test::SmallNet net(2, kWidth, &with_dropout);
  std::vector<at::Tensor> built;
  for (const at::Tensor& parameter : net->parameters()) {
    built.push_back(parameter.detach().clone());
  }
  PlainAdamW optimizer{net->parameters(), 0.01F};
  std::vector<double> losses;
  at::Tensor noise;
  at::Tensor order;
  for (int step = 0; step < 3; ++step) {
    noise = ::torch::randn({4, kWidth});
    const at::Tensor loss = net(noise).pow(2).mean();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
    order = ::torch::randperm(9);
  }
  ::torch::manual_seed(3);  // as before `run` in main
  EXPECT_TRUE(::torch::randn({7}).equal(data));
  const Drawn one = drawn(1, {}).front();
  EXPECT_TRUE(all_equal(one.built, built));
  EXPECT_EQ(one.losses, losses);
  EXPECT_TRUE(one.noise.equal(noise));
  EXPECT_TRUE(one.order.equal(order));
}

TEST(TorchRun, BuildsTheSameModuleOnEveryRankAndThenDrawsDifferentNumbers) {
  const std::vector<Drawn> own = drawn(3, {.seed = 8});
  for (int rank = 1; rank < 3; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    EXPECT_TRUE(all_equal(own[i].built, own[0].built)) << rank;
    EXPECT_FALSE(own[i].noise.equal(own[i - 1].noise)) << rank;
    EXPECT_FALSE(own[i].order.equal(own[i - 1].order)) << rank;
  }
  const std::vector<Drawn> again = drawn(3, {.seed = 8});
  const std::vector<Drawn> same = drawn(3, {.seed = 8, .random = RandomNumbers::same});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(again[rank].losses, own[rank].losses) << rank;
    EXPECT_TRUE(same[rank].noise.equal(same[0].noise)) << rank;
    EXPECT_TRUE(same[rank].order.equal(same[0].order)) << rank;
  }
}

TEST(TorchRun, RanksDecideByTheMeanOfTheirNumbers) {
  for (const int ranks : {1, 3}) {
    std::vector<double> means(static_cast<std::size_t>(ranks));
    tessera::run_ranks(ranks, [&](World& world) {
      means[static_cast<std::size_t>(world.rank())] = tessera::mean(world, 0.1 + world.rank());
    });
    double sum = 0.0;
    for (int rank = 0; rank < ranks; ++rank) { sum += 0.1 + rank; }
    EXPECT_EQ(means, std::vector<double>(static_cast<std::size_t>(ranks), sum / ranks));
  }
}

TEST(TorchRun, PrintsFromRank0) {
  const Said one = said([] {
    return tessera::torch::run([] { return 7; },
                               [](World& world, int& number) {
                                 print(world, "rank %d of %d: %d\n", world.rank(), world.size(),
                                       number);
                                 out(world) << "as a stream\n" << std::flush;
                               },
                               {.ranks = 3});
  });
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(one.out, "rank 0 of 3: 7\nas a stream\n");
  EXPECT_EQ(one.error, "");
}

TEST(TorchRun, APlanPrintsNothing) {
  const Said none = said([] {
    static_cast<void>(plan({.ranks = 2}, [](World& world) {
      print(world, "step\n");
      out(world) << "step\n" << std::flush;
    }));
    return 0;
  });
  EXPECT_EQ(none.out, "");
}

TEST(TorchRun, TellsAnErrorOnceAndReturnsTheProgramsStatus) {
  for (const bool of_build : {false, true}) {
    const Said failed = said([&] {
      return tessera::torch::run(
          [&] {
            if (of_build) { throw std::runtime_error{"no data"}; }
            return 0;
          },
          [](World& world, int&) {
            if (world.rank() == 1) { throw std::runtime_error{"no data"}; }
            world.barrier();
          },
          {.ranks = 3});
    });
    EXPECT_EQ(failed.status, 1);
    EXPECT_EQ(failed.error, of_build ? "error: rank 0: no data\n" : "error: rank 1: no data\n");
  }
}

// The standard library's text says neither where nor why.
TEST(TorchRun, SaysWhoseAnIndexBeyondTheEndIs) {
  const Said failed = said([] {
    return tessera::torch::run(
        [] { return std::vector<int>(3); },
        [](World& world, std::vector<int>& rows) {
          static_cast<void>(rows.at(static_cast<std::size_t>(2 + world.rank())));
          world.barrier();
        },
        {.ranks = 2});
  });
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.error, AllOf(HasSubstr("error: rank 1: "), HasSubstr("a short last batch")));
}

TEST(TorchRun, TakesTheNumberOfRanksFromItsOptionsThenFromTheEnvironment) {
  const auto ranks_with = [](const RunOptions& options) {
    int ranks = 0;
    const int status = tessera::torch::run([] { return 0; },
                                           [&](World& world, int&) {
                                             if (world.rank() == 0) { ranks = world.size(); }
                                           },
                                           options);
    return std::pair{status, ranks};
  };
  EXPECT_EQ(ranks_with({}), (std::pair{0, 1}));
  const test::Variable variable{"TESSERA_RANKS", "3"};
  EXPECT_EQ(ranks_with({}), (std::pair{0, 3}));
  EXPECT_EQ(ranks_with({.ranks = 2}), (std::pair{0, 2}));
  for (const char* const text : {"", "0", "-1", "3x", "many"}) {
    const test::Variable wrong{"TESSERA_RANKS", text};
    const Said refused = said([&] { return ranks_with({}).first; });
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, HasSubstr("TESSERA_RANKS is \"" + std::string{text} + "\""));
  }
}

// Under mpirun; without it, one rank.
TEST(TorchProcesses, OfARunDrawWhatRanksThatAreThreadsDraw) {
  constexpr std::uint64_t kSeed = 6;
  int ranks = 0;
  const int status = tessera::torch::run(
      [] { return ::torch::rand({3}); },
      [&](World& world, at::Tensor& built) {
        ranks = world.size();
        const at::Tensor mine = ::torch::randn({5});
        ::torch::manual_seed(kSeed);
        EXPECT_TRUE(::torch::rand({3}).equal(built));
        if (world.rank() > 0) {  // rank 0 draws on
          ::torch::manual_seed(torch::seed_of_rank(kSeed, world.rank(), RandomNumbers::per_rank));
        }
        EXPECT_TRUE(::torch::randn({5}).equal(mine));
      },
      {.seed = kSeed});
  EXPECT_EQ(status, 0);
  const auto job = launched_job();
  EXPECT_EQ(ranks, job ? job->size : 1);
}

}  // namespace
}  // namespace tessera::torch_run_test

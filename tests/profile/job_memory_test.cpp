#include "tessera/profile/job_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::job_memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::size_t widest(const std::string& text) {
  std::istringstream lines{text};
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) { most = std::max(most, line.size()); }
  return most;
}

std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(JobMemory, IsEveryRanksReportOnEveryRank) {
  constexpr int ranks = 3;
  std::vector<MemoryReport> own(ranks);
  std::vector<JobMemory> gathered(ranks);
  run_ranks(ranks, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    planned_jobs()[3].body(world, {.strategy = Strategy::dp});
    const Buffer mine = world.allocate(Category::activations, 100 << rank, "mine");
    own[rank] = world.memory().report();
    gathered[rank] = gather_memory(world);
  });
  for (const JobMemory& job : gathered) {
    ASSERT_EQ(job.ranks.size(), own.size());
    for (std::size_t rank = 0; rank < own.size(); ++rank) {
      EXPECT_EQ(difference(job.ranks[rank], own[rank]), "") << "rank " << rank;
    }
  }
}

// The caller chooses unit names: no name may end a field.
TEST(JobMemory, CarriesAnyUnitName) {
  run_ranks(2, [](World& world) {
    const std::string name = "12 7:a b\n" + std::to_string(world.rank());
    world.memory().enter(trace::Phase::backward, name, 41);
    const CountedMemory mine = world.memory().register_memory(Category::workspace, 8, "mine");
    const JobMemory job = gather_memory(world);
    EXPECT_EQ(job.ranks[1].peak_at, (trace::Moment{trace::Phase::backward, "12 7:a b\n1", 41}));
  });
}

JobMemory with_bytes(const std::vector<std::size_t>& live) {
  JobMemory job;
  for (const std::size_t bytes : live) {
    MemoryTracker tracker;
    tracker.add(Category::parameters, bytes, "shards");
    tracker.add(Category::gather, 2 * bytes, "slots");
    tracker.remove(Category::gather, 2 * bytes, "slots");
    job.ranks.push_back(tracker.report());
  }
  return job;
}

TEST(JobMemory, SkewNamesTheFirstRanksWithTheLeastAndTheMost) {
  const JobMemory job = with_bytes({20, 10, 30, 10, 30});
  EXPECT_EQ(job.live(), (Skew{10, 1, 30, 2}));
  EXPECT_EQ(job.peak(), (Skew{30, 1, 90, 2}));
  EXPECT_EQ(job.most_in_use(), (Skew{30, 1, 90, 2}));
  EXPECT_EQ(with_bytes({7}).live(), (Skew{7, 0, 7, 0}));
  EXPECT_EQ(with_bytes({0, 0}).peak(), (Skew{0, 0, 0, 0}));
  EXPECT_EQ(JobMemory{}.peak(), Skew{});
}

TEST(JobMemory, PrintsATable) {
  std::string text;
  run_ranks(3, [&](World& world) {
    world.memory().add(Category::parameters, world.rank() == 0 ? 3 << 20 : 1 << 20, "shards");
    world.memory().add(Category::gather, 4096, "slots", BufferUse::parts);
    world.memory().enter(trace::Phase::backward, "h.2", 6);
    const CountedMemory slot = world.memory().occupy(Category::gather, 1024, "h.2");
    const CountedMemory other = world.memory().register_memory(Category::context, 512, "other");
    const std::string mine = gather_memory(world).text();
    if (world.rank() == 0) { text = mine; }
  });
  EXPECT_EQ(text,
            "                                            in use at most, by phase\n"
            "rank               live     peak    setup  forward backward   update\n"
            "0              3.00 MiB 3.00 MiB 3.00 MiB      0 B 3.00 MiB      0 B\n"
            "1-2            1.00 MiB 1.00 MiB 1.00 MiB      0 B 1.00 MiB      0 B\n"
            "\n"
            "at the peak      params    grads    optim   gather   reduce    activ     work     comm"
            "    other\n"
            "0              3.00 MiB      0 B      0 B 4.00 KiB      0 B      0 B      0 B      0 B"
            "    512 B\n"
            "1-2            1.00 MiB      0 B      0 B 4.00 KiB      0 B      0 B      0 B      0 B"
            "    512 B\n"
            "\n"
            "live: from 1.00 MiB on rank 1 to 3.00 MiB on rank 0\n"
            "peak: from 1.00 MiB on rank 1 to 3.00 MiB on rank 0\n"
            "in use at most: 3.00 MiB on rank 0 (backward of h.2, step 7)\n");
}

TEST(JobMemory, TextIsNeverWiderThan100ColumnsNorLongerThanTheRanksThatDiffer) {
  JobMemory job = with_bytes(std::vector<std::size_t>(1 << 20, std::size_t{1023} << 20));
  EXPECT_THAT(job.text(), AllOf(HasSubstr("0-1048575"), HasSubstr("1023 MiB on every rank")));
  EXPECT_LE(lines_of(job.text()), 10);
  job.ranks[524'287] = with_bytes({1}).ranks[0];
  job.ranks[0].most_in_use_at = {trace::Phase::backward, std::string(200, 'x'), 1};
  EXPECT_THAT(job.text(), HasSubstr("524288-1048575"));
  EXPECT_LE(widest(job.text()), 100U);
  EXPECT_EQ(JobMemory{}.text(), "");
}

TEST(JobMemory, OfManyRanksIsTheSameOnAll) {
  std::mutex mutex;
  std::vector<Skew> skews;
  run_ranks(256, [&](World& world) {
    const CountedMemory mine = world.memory().register_memory(
        Category::workspace, static_cast<std::size_t>(world.rank()), "mine");
    const Skew skew = gather_memory(world).live();
    const std::lock_guard lock{mutex};
    skews.push_back(skew);
  });
  EXPECT_EQ(skews, std::vector<Skew>(256, Skew{0, 0, 255, 255}));
}

TEST(JobMemory, OfASimulatedRankAssumesThatAllRanksHoldTheSame) {
  simulate_rank({.rank = 1, .ranks = 1024}, [](World& world) {
    const Buffer buffer = world.allocate(Category::activations, std::size_t{1} << 40, "huge");
    const JobMemory job = gather_memory(world);
    ASSERT_EQ(job.ranks.size(), 1024U);
    EXPECT_EQ(job.live(), (Skew{std::size_t{1} << 40, 0, std::size_t{1} << 40, 0}));
  });
}

TEST(JobMemory, OfARankThatMadeAnotherCallIsRefused) {
  EXPECT_THROW(run_ranks(2,
                         [](World& world) {
                           if (world.rank() == 0) { return (void)gather_memory(world); }
                           (void)world.exchange("hello");
                         }),
               ContractError);
}

}  // namespace
}  // namespace tessera::test::job_memory_test

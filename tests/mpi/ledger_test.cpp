// The ledger of a separate process is complete: categories, the process's baseline and MPI's start
// add up to nearly all resident memory that the system reports. Run under mpirun.
#include "tessera/profile/ledger.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/profile/job_memory.hpp"
#include "tessera/tessera.hpp"
#include "tessera/world/launch.hpp"

namespace tessera::test::ledger_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kBatch = 2;

// 29 MiB of parameters; 116 MiB of model states.
constexpr nn::DecoderConfig kModel{
    .layers = 4, .hidden = 384, .heads = 6, .vocab = 1024, .seq = 64};

/// The same number, read from the system in another way.
std::int64_t resident_now() {
  std::ifstream file{"/proc/self/smaps_rollup"};
  for (std::string word; file >> word;) {
    if (word != "Rss:") { continue; }
    std::int64_t kilobytes = 0;
    file >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

class MpiLedger : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, MpiLedger, ::testing::ValuesIn(all_strategies()),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(MpiLedger, AccountsForEveryByteAfterAFewSteps) {
  ASSERT_TRUE(launched_job()) << "start this program with mpirun";
  run([](World& world) {
    auto gpt = shard(nn::Decoder(kModel), world, {.strategy = GetParam()});
    gpt.materialize(/*seed=*/1);
    gpt.optimize_with(AdamW{});
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kBatch * kModel.seq), 3);
    for (int step = 0; step < 3; ++step) {
      gpt.forward_backward(tokens, tokens);
      gpt.step();
    }
    const std::vector<ProcessLedger> ledgers = gather_ledgers(world);
    const std::int64_t resident = resident_now();
    ASSERT_EQ(std::ssize(ledgers), world.size());
    for (int rank = 0; rank < world.size(); ++rank) {
      const ProcessLedger& ledger = ledgers[static_cast<std::size_t>(rank)];
      EXPECT_EQ(ledger.first_rank, rank);
      EXPECT_EQ(ledger.start.ranks, 1);
      EXPECT_GT(ledger.start.context_bytes, 0U);
      EXPECT_GT(ledger.start.mpi_bytes, 0U);
      const auto held = static_cast<std::int64_t>(ledger.resident_bytes);
      std::int64_t sum = 0;
      for (const LedgerRow& row : ledger.rows()) { sum += row.bytes; }
      EXPECT_EQ(sum, held);
      EXPECT_LT(std::abs(ledger.unattributed()), std::max(held / 20, 16 * kMiB)) << ledger.text();
    }
    const ProcessLedger& mine = ledgers[static_cast<std::size_t>(world.rank())];
    EXPECT_EQ(mine.counted, world.memory().report().live);
    EXPECT_LT(std::abs(static_cast<std::int64_t>(mine.resident_bytes) - resident), kMiB);
  });
}

TEST(MpiMemory, IsGatheredFromEveryProcess) {
  run([](World& world) {
    const auto bytes = 1000 * (static_cast<std::size_t>(world.rank()) + 1);
    const CountedMemory mine = world.memory().register_memory(Category::workspace, bytes, "mine");
    const JobMemory job = gather_memory(world);
    ASSERT_EQ(std::ssize(job.ranks), world.size());
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(job.ranks[static_cast<std::size_t>(rank)].live[Category::workspace],
                static_cast<std::size_t>(1000 * (rank + 1)));
    }
    EXPECT_EQ(job.peak().most_rank, world.size() - 1);
  });
}

}  // namespace
}  // namespace tessera::test::ledger_test

// A process's ledger agrees with the system line by line.
#include "tessera/profile/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::ledger_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kBlock = 64 * kMiB;
// Bytes that the system and the C library allocate and free by themselves.
constexpr std::int64_t kNoise = 2 * kMiB;

/// Private pages, whose use the system reports at once.
class Pages {
 public:
  Pages()
      : data_{::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)} {
    if (data_ == MAP_FAILED) { throw std::runtime_error{"mmap"}; }
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(data_, kBlock); }

  void touch() noexcept {
    for (std::int64_t i = 0; i < kBlock; i += 4096) { static_cast<volatile char*>(data_)[i] = 1; }
  }

 private:
  void* data_;
};

std::int64_t sum_of(const std::vector<LedgerRow>& rows) {
  std::int64_t sum = 0;
  for (const LedgerRow& row : rows) { sum += row.bytes; }
  return sum;
}

std::int64_t bytes_of(const ProcessLedger& ledger, const std::string& name) {
  for (const LedgerRow& row : ledger.rows()) {
    if (row.name == name) { return row.bytes; }
  }
  throw std::runtime_error{"no row " + name};
}

ProcessLedger ledger_of(World& world) {
  const std::vector<ProcessLedger> all = gather_ledgers(world);
  EXPECT_EQ(all.size(), 1U);
  return all.front();
}

#define EXPECT_ABOUT(value, expected) EXPECT_LT(std::abs((value) - (expected)), kNoise)

TEST(Ledger, RowsSumToTheSystemsFigure) {
  run([](World& world) {
    planned_jobs()[1].body(world, {});
    const Buffer mine = world.allocate(Category::activations, 12345, "mine");
    const ProcessLedger ledger = ledger_of(world);
    EXPECT_GT(ledger.resident_bytes, 0U);
    EXPECT_EQ(sum_of(ledger.rows()), static_cast<std::int64_t>(ledger.resident_bytes));
    EXPECT_EQ(ledger.rows().front().name, "context");
    EXPECT_EQ(ledger.rows().back(), (LedgerRow{"unattributed", ledger.unattributed()}));
    EXPECT_EQ(ledger.rows().size(), kCategories + 1)
        << "each category, and the communicator's start";
    EXPECT_GT(bytes_of(ledger, "context"), 0);
    EXPECT_EQ(bytes_of(ledger, "communicator start"), 0) << "without MPI";
    EXPECT_EQ(bytes_of(ledger, "activations"), static_cast<std::int64_t>(mine.bytes()));
  });
}

TEST(Ledger, MemoryThatNoTrackerKnowsIsUnattributedUntilItIsRegistered) {
  run([](World& world) {
    const std::int64_t before = ledger_of(world).unattributed();
    Pages pages;
    pages.touch();
    EXPECT_ABOUT(ledger_of(world).unattributed() - before, kBlock);
    const CountedMemory known =
        world.memory().register_memory(Category::activations, kBlock, "pages");
    const ProcessLedger after = ledger_of(world);
    EXPECT_EQ(bytes_of(after, "activations"), kBlock);
    EXPECT_ABOUT(after.unattributed() - before, 0);
  });
}

TEST(Ledger, UntouchedMemoryIsNotResident) {
  run([](World& world) {
    Pages pages;
    const std::int64_t before = ledger_of(world).unattributed();
    const CountedMemory known =
        world.memory().register_memory(Category::activations, kBlock, "pages");
    const ProcessLedger untouched = ledger_of(world);
    EXPECT_ABOUT(untouched.unattributed() - before, -kBlock);
    EXPECT_EQ(sum_of(untouched.rows()), static_cast<std::int64_t>(untouched.resident_bytes));
    pages.touch();
    EXPECT_ABOUT(ledger_of(world).unattributed() - before, 0);
  });
}

TEST(Ledger, WhatTheProcessHeldBeforeTheRunIsContext) {
  const auto context = [] {
    std::size_t bytes = 0;
    run([&](World& world) { bytes = world.process().context_bytes; });
    return static_cast<std::int64_t>(bytes);
  };
  const std::int64_t before = context();
  Pages pages;
  pages.touch();
  EXPECT_ABOUT(context() - before, kBlock);
}

TEST(Ledger, SumsRanksThatAreThreadsOfOneProcess) {
  std::mutex mutex;
  std::vector<std::size_t> resident;
  run_ranks(4, [&](World& world) {
    const auto bytes = 1000 * (static_cast<std::size_t>(world.rank()) + 1);
    const CountedMemory mine = world.memory().register_memory(Category::workspace, bytes, "mine");
    const ProcessLedger ledger = ledger_of(world);
    EXPECT_EQ(ledger.first_rank, 0);
    EXPECT_EQ(ledger.start.ranks, 4);
    EXPECT_EQ(bytes_of(ledger, "workspace"), 10'000);
    EXPECT_EQ(sum_of(ledger.rows()), static_cast<std::int64_t>(ledger.resident_bytes));
    EXPECT_THAT(ledger.text(), HasSubstr("ranks 0 to 3, which are threads: their sum"));
    const std::lock_guard lock{mutex};
    resident.push_back(ledger.resident_bytes);
  });
  EXPECT_EQ(resident, std::vector<std::size_t>(4, resident.front())) << "the same on all ranks";
}

TEST(Ledger, IsEmptyForASimulatedRank) {
  EXPECT_THAT(
      [] { simulate_rank({.rank = 1, .ranks = 4}, [](World& w) { (void)gather_ledgers(w); }); },
      ::testing::ThrowsMessage<ContractError>(HasSubstr("simulated rank holds no memory")));
}

TEST(Ledger, RanksOnACpuHaveNoSeparateDevice) {
  run([](World& world) { EXPECT_TRUE(gather_device_ledgers(world).empty()); });
  EXPECT_THAT([] { simulate_rank({}, [](World& w) { (void)gather_device_ledgers(w); }); },
              ::testing::ThrowsMessage<ContractError>(HasSubstr("simulated rank holds no memory")));
}

TEST(Ledger, ADevicesRowsSumToItsFigure) {
  DeviceLedger ledger;
  ledger.device = "cuda:1";
  ledger.ranks = {1, 3};
  ledger.use.of = DeviceUse::Of::process;
  ledger.use.used_bytes = 1000 * kMiB;
  ledger.use.context_bytes = 300 * kMiB;
  ledger.use.library_bytes = 50 * kMiB;
  ledger.use.rounding_bytes = 10 * kMiB;
  ledger.use.communicated = "all of it registered";
  ledger.counted[Category::parameters] = 400 * kMiB;
  ledger.counted[Category::communicator] = 200 * kMiB;
  EXPECT_EQ(ledger.unattributed(), 40 * kMiB);
  EXPECT_EQ(sum_of(ledger.rows()), 1000 * kMiB);
  EXPECT_EQ(ledger.rows().front(), (LedgerRow{"context", 300 * kMiB}));
  EXPECT_EQ(ledger.rows().back(), (LedgerRow{"unattributed", 40 * kMiB}));
  const std::string text = ledger.text();
  EXPECT_THAT(text, HasSubstr("cuda:1, of ranks 1, 3\n"));
  EXPECT_THAT(text, HasSubstr("libraries           50.0 MiB    5.0 %\n"));
  EXPECT_THAT(text, HasSubstr("used                1000 MiB  100.0 %\n"));
  EXPECT_THAT(text, HasSubstr("rounding            10.0 MiB    1.0 %\n"));
  EXPECT_THAT(text, HasSubstr("as NVML counts"));
  EXPECT_THAT(text, HasSubstr("\n(all of it registered)\n"));
}

TEST(Ledger, PrintsLinesWithSignsAndParts) {
  ProcessLedger ledger{
      .first_rank = 3, .start = {1, 10 * kMiB, 20 * kMiB}, .resident_bytes = 100 * kMiB};
  ledger.counted[Category::parameters] = 80 * kMiB;
  EXPECT_EQ(ledger.unattributed(), -10 * kMiB);
  const std::string text = ledger.text();
  EXPECT_THAT(text, HasSubstr("the process of rank 3\n"));
  EXPECT_THAT(text, HasSubstr("context             10.0 MiB   10.0 %\n"));
  EXPECT_THAT(text, HasSubstr("communicator start  20.0 MiB   20.0 %\n"));
  EXPECT_THAT(text, HasSubstr("parameters          80.0 MiB   80.0 %\n"));
  EXPECT_THAT(text, HasSubstr("unattributed       -10.0 MiB  -10.0 %\n"));
  EXPECT_THAT(text, HasSubstr("resident             100 MiB  100.0 %\n"));
}

// Bytes that the user counts under the names of the two other rows are added to these rows, once.
TEST(Ledger, ClosesAlsoWhereTheCallerUsesItsOwnRowsAsCategories) {
  ProcessLedger ledger{.start = {1, 10, 0}, .resident_bytes = 100};
  ledger.counted[Category::context] = 5;
  ledger.counted[Category::unattributed] = 7;
  EXPECT_EQ(bytes_of(ledger, "context"), 15);
  EXPECT_EQ(bytes_of(ledger, "unattributed"), 85);
  EXPECT_EQ(sum_of(ledger.rows()), 100);
}

}  // namespace
}  // namespace tessera::test::ledger_test

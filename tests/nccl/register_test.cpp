// Registration of the ranks' arenas with NCCL, as recorded by the double. A launcher runs this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "device/cuda_module.hpp"
#include "emulated_cuda/controls.hpp"
#include "support/gpt_run.hpp"
#include "support/groups.hpp"
#include "support/variable.hpp"
#include "tessera/base/error.hpp"
#include "tessera/profile/ledger.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::register_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kElems = 1024;
constexpr std::int64_t kUnit = 2 << 20;  // of the double's memory

const StartRanks kAsProcesses = [](int, const std::function<void(World&)>& body,
                                   const WorldOptions& options) { run(body, options); };

int ranks() {
  return launched_job(DeviceKind::cuda).value().size;
}

class NcclRegister : public ::testing::Test {
 protected:
  void SetUp() override {
    if (counting() == nullptr) { GTEST_SKIP() << "asks the double of NCCL"; }
    if (ranks() == 1) { GTEST_SKIP() << "nothing moves between ranks"; }
    before_ = all();
  }

  using Count = void(EmulatedNcclCounts* counts);
  static Count* counting() {
    return device::CudaModule::get().function<Count>("emulated_nccl_counts");
  }
  static EmulatedNcclCounts all() {
    EmulatedNcclCounts counts{};
    counting()(&counts);
    return counts;
  }
  /// Counts since the test began.
  [[nodiscard]] EmulatedNcclCounts counts() const {
    EmulatedNcclCounts now = all();
    now.allocated -= before_.allocated;
    now.freed -= before_.freed;
    now.registered -= before_.registered;
    now.deregistered -= before_.deregistered;
    now.ended -= before_.ended;
    now.direct_calls -= before_.direct_calls;
    now.copied_calls -= before_.copied_calls;
    now.copied_large -= before_.copied_large;
    return now;
  }
  void expect_all_undone() const {
    const EmulatedNcclCounts now = counts();
    EXPECT_EQ(now.allocated, now.freed);
    EXPECT_EQ(now.registered, now.deregistered);
    EXPECT_EQ(now.ended, 0U);
  }

  static void run_ranks(const std::function<void(World&)>& body) {
    WorldOptions options;
    options.device = DeviceKind::cuda;
    run(body, options);
  }
  static Buffer arena(World& world) {
    return world.allocate(Category::gather, kElems * sizeof(float), "an arena");
  }
  /// Checks an all_reduce in `buffer` of each rank's number plus 1.
  static void expect_sum(World& world, Buffer& buffer) {
    const std::vector<float> mine(kElems, static_cast<float>(world.rank() + 1));
    const Channel reduce = world.reduce_channel();
    world.device().copy_in(buffer.data(), mine.data(), mine.size() * sizeof(float), reduce.stream);
    reduce.communicator.submit(Batch{"sum"}.all_reduce({buffer.data(), kElems, DType::fp32}),
                               reduce.stream);
    std::vector<float> sum(kElems);
    world.device().copy_out(sum.data(), buffer.data(), sum.size() * sizeof(float), reduce.stream);
    reduce.stream.wait();
    const int n = world.size();
    EXPECT_EQ(sum, std::vector<float>(kElems, 0.5F * static_cast<float>(n * (n + 1))));
  }
  static std::string said(World& world) { return use_of(world.device())->communicated; }

  /// Uses an arena before and after the ranks agree on it; returns how it was communicated.
  static std::string with_an_arena() {
    std::string text;
    run_ranks([&](World& world) {
      Buffer buffer = arena(world);
      expect_sum(world, buffer);
      world.barrier();
      expect_sum(world, buffer);
      text = said(world);
    });
    return text;
  }

 private:
  EmulatedNcclCounts before_{};
};

GPTRun small_run() {
  GPTRun run;
  run.ranks = ranks();
  run.steps = 3;
  run.world.device = DeviceKind::cuda;
  return run;
}

// Exceptions: the few numbers of norms, and gathers before there is an optimizer. Under hybrid only
// the copies communicate here: groups have one rank.
TEST_F(NcclRegister, CoversWhatEveryStrategyMovesInAStep) {
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    std::array<EmulatedNcclCounts, 3> after{counts()};
    for (const int i : {1, 2}) {
      GPTRun run = small_run();
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      run.steps = i;
      (void)train_gpt(run, kAsProcesses);
      after[static_cast<std::size_t>(i)] = counts();
    }
    EXPECT_GT(after[2].direct_calls - after[1].direct_calls,
              after[1].direct_calls - after[0].direct_calls);
    EXPECT_EQ(after[2].copied_large - after[1].copied_large,
              after[1].copied_large - after[0].copied_large);
  }
  expect_all_undone();
}

// Gathers and reductions within pairs, copies across them.
TEST_F(NcclRegister, CoversAModelInPairs) {
  if (ranks() % 2 != 0) { GTEST_SKIP() << "pairs"; }
  std::array<EmulatedNcclCounts, 3> after{counts()};
  for (const int i : {1, 2}) {
    GPTRun run = small_run();
    run.options.strategy = Strategy::hybrid;
    run.options.shard_group = 2;
    run.steps = i;
    (void)train_gpt(run, kAsProcesses);
    after[static_cast<std::size_t>(i)] = counts();
  }
  EXPECT_GT(after[2].direct_calls - after[1].direct_calls,
            after[1].direct_calls - after[0].direct_calls);
  EXPECT_EQ(after[2].copied_large - after[1].copied_large,
            after[1].copied_large - after[0].copied_large);
  expect_all_undone();
}

/// Like expect_sum, over the ranks of `group`.
void expect_group_sum(World& world, Buffer& buffer, const Channel& group) {
  const std::vector<float> ones(kElems, 1.0F);
  world.device().copy_in(buffer.data(), ones.data(), ones.size() * sizeof(float), group.stream);
  group.communicator.submit(Batch{"sum"}.all_reduce({buffer.data(), kElems, DType::fp32}),
                            group.stream);
  std::vector<float> sum(kElems);
  world.device().copy_out(sum.data(), buffer.data(), sum.size() * sizeof(float), group.stream);
  group.stream.wait();
  EXPECT_EQ(sum, std::vector<float>(kElems, static_cast<float>(group.communicator.size())));
}

// Arenas that exist before a group, or are made later, are registered with it where all ranks next
// meet; a group of one moves nothing. When the group ends, none of its registrations remain.
TEST_F(NcclRegister, CoversGroupsFromTheRanksNextCollective) {
  run_ranks([&](World& world) {
    Buffer first = arena(world);
    world.barrier();
    const GroupOf rule = [](int rank) { return rank == 0 ? 0 : 1; };
    const Channel whole = world.reduce_channel();
    const std::uint64_t direct = counts().direct_calls;
    {
      const auto group = whole.communicator.split(rule, "all but rank 0");
      const Channel channel{*group, whole.stream};
      expect_group_sum(world, first, channel);
      EXPECT_EQ(counts().direct_calls, direct);
      Buffer second = arena(world);
      world.barrier();
      expect_group_sum(world, first, channel);
      expect_group_sum(world, second, channel);
      EXPECT_EQ(counts().direct_calls - direct, group->size() > 1 ? 2U : 0U);
      EXPECT_EQ(counts().registered, group->size() > 1 ? 6U : 4U);
    }
    EXPECT_EQ(counts().deregistered, world.rank() > 0 ? 4U : 2U);
    expect_sum(world, first);
  });
  expect_all_undone();
}

TEST_F(NcclRegister, FailureWithAGroupLeavesAllWithout) {
  const auto done = std::to_string(all().registered + 2);
  const Variable fails{"TESSERA_EMULATED_NCCL_REGISTER_FAILS_AT", done + ":1"};
  run_ranks([&](World& world) {
    Buffer buffer = arena(world);
    world.barrier();
    const Channel group = world.split(
        world.reduce_channel(), [](int rank) { return rank == 0 ? 0 : 1; }, "all but rank 0");
    world.barrier();
    EXPECT_THAT(said(world), HasSubstr("rank 1: ncclCommRegister failed: "));
    expect_group_sum(world, buffer, group);
    expect_sum(world, buffer);
  });
  EXPECT_EQ(counts().direct_calls, 0U);
  expect_all_undone();
}

TEST_F(NcclRegister, NcclsMemoryForGroupsIsCountedWhileTheyLive) {
  constexpr std::size_t kTaken = 3U << 20U;
  const Variable takes{"TESSERA_EMULATED_NCCL_COMM_BYTES", std::to_string(kTaken)};
  run_ranks([](World& world) {
    // Ranks that share the device also see the others' allocations.
    const auto held = [&] { return world.memory().report().live[Category::communicator]; };
    const std::size_t whole = held();
    EXPECT_GE(whole, 2 * kTaken);
    {
      const auto group =
          world.reduce_channel().communicator.split([](int) { return 0; }, "all of them");
      EXPECT_GE(held(), whole + kTaken);
      world.barrier();
    }
    EXPECT_EQ(held(), whole);
    world.barrier();
  });
}

// NCCL waits until graphs release the group, so its memory is freed when the run ends.
TEST_F(NcclRegister, NcclsMemoryForAGroupInAGraphIsCountedUntilTheRunEnds) {
  constexpr std::size_t kTaken = 3U << 20U;
  const Variable takes{"TESSERA_EMULATED_NCCL_COMM_BYTES", std::to_string(kTaken)};
  run_ranks([](World& world) {
    const auto held = [&] { return world.memory().report().live[Category::communicator]; };
    Buffer buffer = arena(world);
    const Channel reduce = world.reduce_channel();
    const std::size_t whole = held();
    {
      const auto group = reduce.communicator.split([](int) { return 0; }, "all of them");
      world.run_as_graph([&] {
        group->submit(Batch{"sum"}.all_reduce({buffer.data(), kElems, DType::fp32}), reduce.stream);
      });
      reduce.stream.wait();
      world.barrier();
    }
    EXPECT_GE(held(), whole + kTaken);
    world.barrier();
  });
}

TEST_F(NcclRegister, ChangesNoBit) {
  for (const Strategy strategy : {Strategy::dp, Strategy::ddp, Strategy::zero3}) {
    SCOPED_TRACE(to_string(strategy));
    GPTRun run = small_run();
    run.options.strategy = strategy;
    run.first_graph_step = strategy == Strategy::zero3 ? 2 : -1;
    const ToyOutcome with = train_gpt(run, kAsProcesses);
    const Variable off{"TESSERA_NCCL_REGISTER", "0"};
    const EmulatedNcclCounts before = counts();
    const ToyOutcome without = train_gpt(run, kAsProcesses);
    EXPECT_EQ(counts().direct_calls, before.direct_calls);
    EXPECT_EQ(counts().allocated, before.allocated);
    if (launched_rank() == 0) { EXPECT_EQ(difference(with, without), ""); }
  }
  expect_all_undone();
}

TEST_F(NcclRegister, TakesEffectAtTheRanksNextCollective) {
  EXPECT_EQ(with_an_arena(), "registered with NCCL: 1 arena (4.00 KiB)");
  EXPECT_EQ(counts().copied_calls, 1U);
  EXPECT_EQ(counts().direct_calls, 1U);
  EXPECT_EQ(counts().registered, 2U) << "with each of the two communicators";
  expect_all_undone();
}

TEST_F(NcclRegister, FailureOnOneRankLeavesAllWithout) {
  for (const char* const at : {"0:1", "1:1"}) {  // the first communicator, the second
    SCOPED_TRACE(at);
    const auto done = std::to_string(all().registered + static_cast<std::uint64_t>(at[0] - '0'));
    const Variable fails{"TESSERA_EMULATED_NCCL_REGISTER_FAILS_AT", done + ":1"};
    const EmulatedNcclCounts before = counts();
    EXPECT_THAT(with_an_arena(),
                AllOf(HasSubstr("through its own buffers: rank 1: ncclCommRegister failed: "),
                      HasSubstr("unhandled system error")));
    EXPECT_EQ(counts().direct_calls, before.direct_calls);
  }
  expect_all_undone();
}

TEST_F(NcclRegister, ContinuesWithoutIfNcclRefuses) {
  const std::vector<std::array<const char*, 3>> ways{
      {"TESSERA_EMULATED_NCCL_REGISTER", "declines:0", "rank 0: NCCL declines"},
      {"TESSERA_EMULATED_NCCL_MEMORY", "none:1", "rank 1: ncclMemAlloc of 4.00 KiB failed: "},
      {"TESSERA_EMULATED_NCCL_GRANULARITY", "536870912:1",
       "rank 1: ncclMemAlloc of 4.00 KiB takes 512 MiB of the device"},
      {"TESSERA_EMULATED_NCCL_VERSION", "21805", "rank 0: NCCL 2.18.5 cannot"},
      {"TESSERA_NCCL_REGISTER", "0", "rank 0: TESSERA_NCCL_REGISTER=0"}};
  for (const auto& [name, value, expected] : ways) {
    SCOPED_TRACE(name);
    const Variable variable{name, value};
    EXPECT_THAT(with_an_arena(), HasSubstr(expected));
  }
  EXPECT_EQ(counts().direct_calls, 0U);
  expect_all_undone();
}

TEST_F(NcclRegister, RoundsUpByASmallPartOfTheArena) {
  const Variable unit{"TESSERA_EMULATED_NCCL_GRANULARITY", std::to_string(8 << 20)};
  run_ranks([](World& world) {
    Buffer large = world.allocate(Category::gather, std::size_t{50} << 20U, "6 of 56 MiB");
    world.barrier();
    EXPECT_EQ(said(world), "registered with NCCL: 1 arena (50.0 MiB)");
    EXPECT_EQ(use_of(world.device())->rounding_bytes, std::size_t{6} << 20U);
    Buffer small = world.allocate(Category::gather, std::size_t{11} << 20U, "5 of 16 MiB");
    world.barrier();
    EXPECT_THAT(said(world), HasSubstr("rank 0: ncclMemAlloc of 11.0 MiB takes 16.0 MiB"));
  });
  expect_all_undone();
}

TEST_F(NcclRegister, ContinuesWithoutIfTheDriverDoesNotReportItsCost) {
  constexpr int kNotSupported = 801;
  using Fail = void(const char* call, int nth, int error);
  device::CudaModule::get().function<Fail>("emulated_cuda_fail")("cudaGetDriverEntryPoint", 1,
                                                                 kNotSupported);
  EXPECT_THAT(with_an_arena(),
              HasSubstr("rank 0: the driver does not say how much of the device ncclMemAlloc"));
  expect_all_undone();
}

TEST_F(NcclRegister, MemoryOfOtherProcessesIsNotRounding) {
  const Variable crowded{"TESSERA_EMULATED_NCCL_MEMORY", "crowded"};
  run_ranks([](World& world) {
    Buffer buffer = arena(world);
    EXPECT_EQ(use_of(world.device())->rounding_bytes, kUnit - buffer.bytes());
  });
}

// The double ends the process if memory in use is deregistered.
TEST_F(NcclRegister, IsUndoneOnceTheDeviceIsDone) {
  run_ranks([](World& world) {
    Buffer buffer = world.allocate(Category::gather, std::size_t{16} << 20U, "in use");
    world.barrier();
    const Channel reduce = world.reduce_channel();
    const View all{buffer.data(), std::int64_t{4} << 20, DType::fp32};
    for (int i = 0; i < 4; ++i) {
      reduce.communicator.submit(Batch{"sum"}.all_reduce(all), reduce.stream);
    }
    const Variable fails{"TESSERA_EMULATED_NCCL_MEMORY", "none:1"};
    Buffer last = arena(world);
    world.barrier();
    EXPECT_THAT(said(world), HasSubstr("rank 1: ncclMemAlloc"));
    reduce.stream.wait();
  });
  expect_all_undone();
}

TEST_F(NcclRegister, WaitsForRanksWithFewerArenas) {
  run_ranks([](World& world) {
    Buffer buffer = arena(world);
    Buffer more;
    if (world.rank() == 0) { more = arena(world); }
    world.barrier();
    EXPECT_THAT(said(world), AllOf(HasSubstr("0 arenas"), HasSubstr("different numbers")));
    expect_sum(world, buffer);
    if (world.rank() != 0) { more = arena(world); }
    world.barrier();
    EXPECT_THAT(said(world), HasSubstr("2 arenas (8.00 KiB)"));
    expect_sum(world, buffer);
  });
  EXPECT_EQ(counts().direct_calls, 1U);
  expect_all_undone();
}

TEST_F(NcclRegister, MemoryThatRunsOutLeavesNothingBehind) {
  run_ranks([](World& world) {
    Buffer buffer = arena(world);
    world.barrier();
    EXPECT_THROW((void)world.allocate(Category::gather, std::size_t{1} << 40U, "all of it"),
                 OutOfMemory);
    world.barrier();
    EXPECT_THAT(said(world), HasSubstr("ncclMemAlloc of 1.00 TiB failed"));
    expect_sum(world, buffer);
  });
  EXPECT_EQ(counts().direct_calls, 0U);
  expect_all_undone();
}

TEST_F(NcclRegister, TheLedgerSaysWhereTheRoundingGoes) {
  run_ranks([](World& world) {
    Buffer buffer = arena(world);
    const std::vector<DeviceLedger> ledgers = gather_device_ledgers(world);
    const auto bytes = static_cast<std::int64_t>(buffer.bytes());
    const auto all = static_cast<std::int64_t>(ledgers.size());  // one device, or one per rank
    for (const DeviceLedger& ledger : ledgers) {
      const auto here = static_cast<std::int64_t>(ledger.ranks.size());
      EXPECT_EQ(here * all, world.size());
      std::int64_t sum = 0;
      for (const LedgerRow& row : ledger.rows()) {
        sum += row.bytes;
        if (row.name == "gather") { EXPECT_EQ(row.bytes, here * bytes); }
        if (row.name == "rounding") { EXPECT_EQ(row.bytes, here * (kUnit - bytes)); }
        if (row.name == "unattributed") { EXPECT_LT(std::abs(row.bytes), 64 << 10); }
      }
      EXPECT_EQ(sum, static_cast<std::int64_t>(ledger.use.used_bytes));
      EXPECT_THAT(ledger.text(), HasSubstr("(registered with NCCL: 1 arena (4.00 KiB))"));
    }
  });
}

TEST(NcclRegisterAlone, PrintsNothing) {
  if (ranks() > 1) { GTEST_SKIP() << "for a job of one"; }
  WorldOptions options;
  options.device = DeviceKind::cuda;
  run([](World& world) { EXPECT_EQ(use_of(world.device())->communicated, ""); }, options);
}

}  // namespace
}  // namespace tessera::test::register_test

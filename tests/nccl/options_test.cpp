// What a run requests from NCCL and from its channels' streams, as recorded by the doubles. A
// launcher runs this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "device/cuda_module.hpp"
#include "emulated_cuda/controls.hpp"
#include "support/gpt_run.hpp"
#include "support/variable.hpp"
#include "tessera/base/error.hpp"
#include "tessera/profile/ledger.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::nccl_options_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kElems = 1024;

const StartRanks kAsProcesses = [](int, const std::function<void(World&)>& body,
                                   const WorldOptions& options) { run(body, options); };

class NcclOptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::CudaModule::get().function<void(EmulatedNcclCounts*)>("emulated_nccl_counts") ==
        nullptr) {
      GTEST_SKIP() << "asks the double of NCCL";
    }
    before_ = all();
  }

  static EmulatedNcclCounts all() {
    EmulatedNcclCounts counts{};
    device::CudaModule::get().function<void(EmulatedNcclCounts*)>("emulated_nccl_counts")(&counts);
    return counts;
  }
  static std::uint64_t calls(const char* call) {
    return device::CudaModule::get().function<std::uint64_t(const char*)>("emulated_cuda_calls")(
        call);
  }
  static WorldOptions on_cuda(const NcclOptions& nccl = {}) {
    WorldOptions options;
    options.device = DeviceKind::cuda;
    options.nccl = nccl;
    return options;
  }
  /// Uses an arena that exists when the ranks meet; returns how it was communicated.
  static std::string with_an_arena(const WorldOptions& options) {
    std::string text;
    run(
        [&](World& world) {
          Buffer buffer = world.allocate(Category::gather, kElems * sizeof(float), "an arena");
          world.barrier();
          const Channel reduce = world.reduce_channel();
          reduce.communicator.submit(Batch{"sum"}.all_reduce({buffer.data(), kElems, DType::fp32}),
                                     reduce.stream);
          reduce.stream.wait();
          text = use_of(world.device())->communicated;
        },
        options);
    return text;
  }
  template <class E>
  static std::string error_of(const WorldOptions& options) {
    try {
      (void)with_an_arena(options);
    } catch (const E& error) { return error.what(); }
    return "no error of this kind";
  }

  EmulatedNcclCounts before_{};
};

TEST_F(NcclOptionsTest, LimitsAreThoseOfEveryCommunicator) {
  run(
      [](World& world) {
        (void)world.split(world.reduce_channel(), [](int) { return 0; }, "all of them");
      },
      on_cuda({.min_ctas = 2, .max_ctas = 8}));
  EXPECT_EQ(all().limited - before_.limited, 3U) << "gather, reduce and the one split off";
  EXPECT_EQ(all().min_ctas, 2);
  EXPECT_EQ(all().max_ctas, 8);
  (void)with_an_arena(on_cuda({.max_ctas = 4}));
  EXPECT_EQ(all().min_ctas, 0);
  EXPECT_EQ(all().max_ctas, 4);
  const std::uint64_t limited = all().limited;
  (void)with_an_arena(on_cuda());
  EXPECT_EQ(all().limited, limited) << "left to NCCL where nothing is asked for";
}

TEST_F(NcclOptionsTest, PriorityAppliesToBothChannelsOnly) {
  WorldOptions options = on_cuda();
  const std::uint64_t before = calls("cudaStreamCreateWithPriority");
  (void)with_an_arena(options);
  EXPECT_EQ(calls("cudaStreamCreateWithPriority"), before);
  options.tuning.channel_priority = StreamPriority::high;
  (void)with_an_arena(options);
  EXPECT_EQ(calls("cudaStreamCreateWithPriority"), before + 2);
}

TEST_F(NcclOptionsTest, WindowsCoverAnArenaAndEndBeforeIt) {
  EXPECT_EQ(with_an_arena(on_cuda({.windows = true})),
            "registered with NCCL as symmetric windows: 1 arena (4.00 KiB)");
  const EmulatedNcclCounts after = all();
  EXPECT_EQ(after.windows - before_.windows, 2U) << "with each of the two communicators";
  EXPECT_EQ(after.registered - before_.registered, 2U) << "and as nothing else";
  EXPECT_EQ(after.deregistered - before_.deregistered, 2U);
  EXPECT_EQ(after.direct_calls - before_.direct_calls, 1U);
  EXPECT_EQ(after.freed - before_.freed, after.allocated - before_.allocated);
}

TEST_F(NcclOptionsTest, NoOptionChangesABit) {
  GPTRun run;
  run.ranks = launched_job(DeviceKind::cuda).value().size;
  run.steps = 3;
  run.world = on_cuda();
  run.options.strategy = Strategy::zero3;
  const ToyOutcome without = train_gpt(run, kAsProcesses);
  run.world = on_cuda({.min_ctas = 1, .max_ctas = 2, .windows = true});
  run.world.tuning.channel_priority = StreamPriority::high;
  for (const Strategy strategy : {Strategy::zero3, Strategy::dp}) {
    run.options.strategy = strategy;
    const ToyOutcome with = train_gpt(run, kAsProcesses);
    if (launched_rank() == 0) { EXPECT_EQ(difference(with, without), "") << to_string(strategy); }
  }
  EXPECT_EQ(all().registered - before_.registered, all().deregistered - before_.deregistered);
}

TEST_F(NcclOptionsTest, WindowsWaitForRanksWhoseArenasDiffer) {
  run(
      [](World& world) {
        Buffer first =
            world.allocate(Category::gather, 1024U << (world.rank() == 0 ? 1U : 0U), "one");
        world.barrier();
        EXPECT_THAT(
            use_of(world.device())->communicated,
            AllOf(HasSubstr("0 arenas"), HasSubstr("not yet 1, because the ranks' arenas differ")));
      },
      on_cuda({.windows = true}));
  EXPECT_EQ(all().windows, before_.windows);
}

// A job of one rank refuses at once; with several, all but rank 0 would wait for rank 0's report. A
// run without the requested feature never starts.
class NcclRefusal : public NcclOptionsTest {
 protected:
  void SetUp() override {
    if (launched_job(DeviceKind::cuda).value().size > 1) { GTEST_SKIP() << "for a job of one"; }
    NcclOptionsTest::SetUp();
  }
};

TEST_F(NcclRefusal, NamesTheMissingFunction) {
  const NcclOptions windows{.windows = true};
  const NcclOptions limits{.max_ctas = 4};
  struct Case {
    const char* variable;
    const char* value;
    const NcclOptions& asked;
    const char* expected;
  };
  for (const Case& one :
       {Case{"TESSERA_EMULATED_NCCL_VERSION", "22605", windows, "`nccl.windows`: NCCL 2.26.5"},
        Case{"TESSERA_NCCL_REGISTER", "0", windows, "`nccl.windows`: TESSERA_NCCL_REGISTER=0"},
        Case{"TESSERA_EMULATED_NCCL_VERSION", "21602", limits, "`nccl.max_ctas`: NCCL 2.16.2"},
        Case{"NCCL_MAX_CTAS", "9", limits, "NCCL_MAX_CTAS=9 would override them"}}) {
    SCOPED_TRACE(one.expected);
    const Variable variable{one.variable, one.value};
    EXPECT_THAT(error_of<ConfigError>(on_cuda(one.asked)), HasSubstr(one.expected));
  }
  EXPECT_THAT(error_of<ConfigError>(on_cuda({.max_ctas = 65})), HasSubstr("from 1 to 64"));
  EXPECT_THAT(error_of<ConfigError>(on_cuda({.min_ctas = 3, .max_ctas = 2})),
              HasSubstr("`nccl.min_ctas` is 3, above"));
}

TEST_F(NcclOptionsTest, AnArenaThatCannotBeAWindowEndsTheRun) {
  const Variable none{"TESSERA_EMULATED_NCCL_MEMORY", "none:1"};
  EXPECT_THAT(error_of<CommError>(on_cuda({.windows = true})),
              HasSubstr("`nccl.windows`: NCCL cannot register the arenas: rank 1: ncclMemAlloc of "
                        "4.00 KiB failed"));
}

TEST_F(NcclOptionsTest, RanksThatAskForDifferentOptionsAreRefused) {
  const bool first = launched_rank() == 0;
  EXPECT_THAT(error_of<CommError>(on_cuda({.max_ctas = first ? 4 : 5})),
              HasSubstr("ask for the same on all ranks"));
}

}  // namespace
}  // namespace tessera::test::nccl_options_test

// The command plans what its runs hold, to the byte.
#include "tools/plan/planner.hpp"

#include <algorithm>

#include "cli/command.hpp"
#include "tessera/base/error.hpp"
#include "tools/options/command_line.hpp"
#include "tools/train/trainer.hpp"

namespace tessera::tools::planner_test {
namespace {

class Planner : public test::CommandTest {
 protected:
  [[nodiscard]] Settings settings(const std::vector<std::string>& more) const {
    const std::vector<std::string> words = small("train", more);
    std::vector<const char*> raw;
    for (const std::string& word : words) { raw.push_back(word.c_str()); }
    return parse_command_line(raw).settings;
  }

  void expect_as_run(const Settings& asked, Strategy strategy) const {
    const Job job = prepare(asked, {strategy});
    const RunResult run = run_training(job, strategy, [](const StepRecord&) {});
    std::size_t ranks = 0;
    for (const RankPlan& plan : plan_training(asked, job.model, strategy, asked.ranks)) {
      EXPECT_EQ(plan.rank, plan.ranks.front());
      EXPECT_EQ(plan.count, std::ssize(plan.ranks));
      ranks += plan.ranks.size();
      for (const int rank : plan.ranks) {
        const auto& ran = run.ranks.at(static_cast<std::size_t>(rank));
        EXPECT_EQ(plan.memory.peak_bytes, ran.peak_bytes) << "rank " << rank;
        EXPECT_EQ(plan.memory.at_peak, ran.at_peak) << "rank " << rank;
        EXPECT_EQ(plan.state, ran.state) << "rank " << rank;
        EXPECT_EQ(plan.host_peak_bytes, ran.host_peak_bytes) << "rank " << rank;
      }
    }
    EXPECT_EQ(ranks, run.ranks.size());
  }
};

TEST_F(Planner, PlansWhatEveryRankOfARunHolds) {
  const std::vector<std::vector<std::string>> variants = {
      {"--steps", "2"},
      {"--steps", "2", "--accumulate", "5", "--threads", "2"},
      {"--steps", "1", "--accumulate", "2", "--accumulate-mode", "deferred", "--clip", "0"},
      {"--steps", "0", "--checkpoint", path("weights")},
      {"--steps", "1", "--checkpoint", path("weights")},
      {"--steps", "2", "--checkpoint", path("weights"), "--checkpoint-every", "1"}};
  for (const auto& variant : variants) {
    for (const Strategy strategy : all_strategies()) {
      std::filesystem::remove_all(path("weights"));
      SCOPED_TRACE(testing::PrintToString(variant) + std::string{to_string(strategy)});
      expect_as_run(settings(variant), strategy);
    }
  }
  for (const char* when : {"after-forward", "after-backward"}) {
    expect_as_run(settings({"--steps", "2", "--accumulate", "5", "--prefetch", "0",
                            "--prefetch-backward", "1", "--reshard", when}),
                  Strategy::zero3);
  }
}

// Places along tensor are planned once for each size of their parts.
TEST_F(Planner, PlansUnevenPartsAlongTensorAsTheyRun) {
  const std::vector<std::vector<std::string>> variants = {
      {"--ranks", "5", "--mesh", "tensor=5"},
      {"--ranks", "5", "--mesh", "tensor=5", "--sequence-parallel", "--head-rows", "7"},
      {"--ranks", "5", "--mesh", "tensor=5", "--precision", "bf16", "--offload", "state"},
      {"--ranks", "6", "--mesh", "pipe=2,tensor=3", "--accumulate", "3"},
      {"--ranks", "6", "--mesh", "shard=2,tensor=3", "--strategy", "zero3"}};
  for (const auto& variant : variants) {
    SCOPED_TRACE(testing::PrintToString(variant));
    std::vector<const char*> words = {"train", "--layers", "2", "--hidden", "28",  "--seq",
                                      "15",    "--heads",  "7", "--vocab",  "263", "--batch",
                                      "2",     "--steps",  "2", "--data"};
    const std::string data = path("text.txt");
    words.push_back(data.c_str());
    for (const std::string& word : variant) { words.push_back(word.c_str()); }
    const Settings asked = parse_command_line(words).settings;
    expect_as_run(asked, asked.sharded.strategy);
  }
}

TEST_F(Planner, CountsTheHostMemoryOfAsynchronousSaves) {
  const auto host = [&](const std::vector<std::string>& more) {
    std::vector<const char*> words = {"plan", "--ranks", "4", "--strategies", "zero3"};
    for (const std::string& word : more) { words.push_back(word.c_str()); }
    const Settings asked = parse_command_line(words).settings;
    return plan_asked(asked, Strategy::zero3).fullest().host_peak_bytes;
  };
  const std::vector<std::string> beside = {"--checkpoint", "c", "--checkpoint-every", "10"};
  const std::size_t bytes = host(beside);
  const nn::DecoderConfig nano = nn::DecoderConfig::preset("gpt-nano");
  EXPECT_GE(bytes, static_cast<std::size_t>(3 * nano.parameter_elems()));  // 12 bytes, 4 ranks
  EXPECT_EQ(host({}), 0U);
  EXPECT_LE(host({"--checkpoint", "c"}), std::size_t{40} << 20);
  EXPECT_GT(host({"--checkpoint", "c", "--checkpoint-every", "10", "--params", "1e9"}),
            std::size_t{3'000'000'000});
}

TEST_F(Planner, WithALimitReturnsTheSamePlanOrNone) {
  for (const Strategy strategy : {Strategy::dp, Strategy::ddp, Strategy::zero3}) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--recompute", "block"}, {"--offload", "activations"}}) {
      const Settings asked = settings(more);
      const StrategyPlan whole = plan_asked(asked, strategy);
      const std::size_t peak = whole.fullest().memory.peak_bytes;
      const auto within = plan_asked_within(peak, asked, strategy);
      ASSERT_TRUE(within.has_value());
      ASSERT_EQ(within->ranks.size(), whole.ranks.size());
      for (std::size_t i = 0; i < whole.ranks.size(); ++i) {
        EXPECT_EQ(within->ranks[i].count, whole.ranks[i].count);
        EXPECT_EQ(within->ranks[i].memory.at_peak, whole.ranks[i].memory.at_peak);
        EXPECT_EQ(within->ranks[i].state, whole.ranks[i].state);
      }
      EXPECT_FALSE(plan_asked_within(peak - 1, asked, strategy).has_value());
    }
  }
}

TEST_F(Planner, RunsOnlyTheDistinctRanksOfAnyNumber) {
  const Settings asked = settings({});
  constexpr int ranks = TESSERA_SANITIZED ? 1 << 14 : 1 << 20;
  const auto dp = plan_training(asked, asked.named_model(), Strategy::dp, ranks);
  ASSERT_EQ(dp.size(), 2U);
  EXPECT_EQ(dp[1].count, ranks - 1);
  EXPECT_EQ(dp[1].state, ModelStateBytes{});
  EXPECT_THROW((void)plan_training(asked, asked.named_model(), Strategy::dp, (1 << 20) + 1),
               ConfigError);
}

TEST_F(Planner, UsesMpiWhereThreadsAreImpossible) {
  Settings asked = settings({});
  EXPECT_EQ(planned_comm(asked, 256), CommKind::local);
  EXPECT_EQ(planned_comm(asked, 257), CommKind::mpi);
  asked.comm = CommChoice::mpi;
  EXPECT_EQ(planned_comm(asked, 2), CommKind::mpi);
  asked = settings({"--device", "cuda"});
  EXPECT_EQ(planned_comm(asked, 256), CommKind::local);
  EXPECT_EQ(planned_comm(asked, 257), CommKind::nccl);
}

// Planning needs no CUDA: the kernels' workspace is a constant, attention's a function.
TEST_F(Planner, PlansForCudaAnywhere) {
  const Settings cpu = settings({});
  const Settings cuda = settings({"--device", "cuda"});
  for (const Strategy strategy : all_strategies()) {
    const auto there = plan_training(cuda, cuda.named_model(), strategy, 4);
    const auto here = plan_training(cpu, cpu.named_model(), strategy, 4);
    ASSERT_EQ(there.size(), here.size());
    EXPECT_EQ(there[0].state, here[0].state);
    EXPECT_GE(there[0].memory.at_peak[Category::workspace], std::size_t{32} << 20);
    EXPECT_EQ(there[0].memory.at_peak[Category::parameters],
              here[0].memory.at_peak[Category::parameters]);
  }
}

// Parameters divide evenly among units and ranks here, so the sums match the table.
TEST_F(Planner, AStackHoldsTheParametersAndTheirSlotsAlone) {
  const Settings asked = settings({});
  constexpr std::int64_t elems = std::int64_t{64} * 64 * 4 * 10;
  const auto plan = plan_stack(asked, elems, Strategy::zero3, 4);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].state, (ModelStateBytes{elems, elems, 2 * elems}));  // 4 bytes, 4 ranks
  EXPECT_EQ(plan[0].memory.at_peak[Category::gather], 4 * 2 * elems / 64);
  EXPECT_EQ(plan[0].memory.at_peak[Category::reduce], 4 * 2 * elems / 64);
  EXPECT_EQ(plan[0].memory.at_peak[Category::activations], 0U);
  EXPECT_EQ(plan_stack(asked, 1, Strategy::ddp, 1)[0].state.parameters, 64 * sizeof(float));
}

}  // namespace
}  // namespace tessera::tools::planner_test

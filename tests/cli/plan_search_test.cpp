// The order in which a search tries settings.
#include "tools/plan/plan_search.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"
#include "tools/options/command_line.hpp"
#include "tools/options/mesh.hpp"
#include "tools/plan/mesh_search.hpp"

namespace tessera::tools::plan_search_test {
namespace {

Settings settings_of(std::vector<const char*> words) {
  words.insert(words.begin(), "plan");
  return parse_command_line(words).settings;
}

std::vector<std::string> texts(const Settings& settings) {
  std::vector<std::string> all;
  for (const Choice& choice : choices(settings)) {
    const Settings& s = choice.settings;
    all.push_back(fmt::format("{} {} {}x{} {} prefetch {}", choice.traffic,
                              to_string(choice.strategy), s.batch, s.sharded.accumulate,
                              to_string(resolve(s.sharded.accumulate_mode, choice.strategy)),
                              s.sharded.prefetch));
  }
  return all;
}

TEST(PlanSearch, TriesLeastTrafficThenLargeMicroBatchesThenPrefetch) {
  EXPECT_THAT(
      texts(settings_of({"--ranks", "4", "--batch", "2"})),
      testing::ElementsAre("2 ddp 2x1 deferred prefetch 1", "2 zero1 2x1 deferred prefetch 1",
                           "2 zero2 2x1 every prefetch 1", "2 ddp 1x2 deferred prefetch 1",
                           "2 zero1 1x2 deferred prefetch 1", "2 zero2 1x2 deferred prefetch 1",
                           "3 zero3 2x1 every prefetch 1", "3 zero3 2x1 every prefetch 0",
                           "3 zero2 1x2 every prefetch 1", "5 zero3 1x2 deferred prefetch 1",
                           "5 zero3 1x2 deferred prefetch 0", "6 zero3 1x2 every prefetch 1",
                           "6 zero3 1x2 every prefetch 0"));
}

TEST(PlanSearch, KeepsGivenOptionsAndTheGlobalBatch) {
  const Settings settings = settings_of({"--ranks", "2", "--batch", "6", "--accumulate", "2",
                                         "--prefetch", "3", "--accumulate-mode", "every"});
  std::vector<std::int64_t> batches;
  for (const Choice& choice : choices(settings)) {
    EXPECT_EQ(choice.settings.sharded.prefetch, 3);
    EXPECT_EQ(choice.settings.sharded.accumulate_mode, AccumulateMode::every);
    EXPECT_EQ(choice.settings.batch * choice.settings.sharded.accumulate, 12);
    if (choice.strategy == Strategy::zero3) { batches.push_back(choice.settings.batch); }
  }
  EXPECT_EQ(batches, (std::vector<std::int64_t>{12, 6, 4, 3, 2, 1}));
}

TEST(PlanSearch, HybridIsTriedByWhatPassesBetweenItsGroups) {
  const auto strategies = [](const char* group) {
    std::vector<std::string> all;
    for (const Choice& choice : choices(settings_of(
             {"--ranks", "4", "--batch", "1", "--prefetch", "1", "--shard-group", group}))) {
      all.push_back(fmt::format("{}+{} {} of {}", choice.traffic, choice.within_group,
                                to_string(choice.strategy), choice.settings.sharded.shard_group));
    }
    return all;
  };
  EXPECT_THAT(strategies("2"),
              testing::ElementsAre("2+0 ddp of 0", "2+0 zero1 of 0", "2+0 zero2 of 0",
                                   "2+3 hybrid of 2", "3+0 zero3 of 0"));
  EXPECT_THAT(strategies("1"),
              testing::ElementsAre("2+0 ddp of 0", "2+0 zero1 of 0", "2+0 zero2 of 0",
                                   "2+0 hybrid of 1", "3+0 zero3 of 0"));
  EXPECT_THAT(strategies("4"),
              testing::ElementsAre("2+0 ddp of 0", "2+0 zero1 of 0", "2+0 zero2 of 0",
                                   "3+0 zero3 of 0", "3+0 hybrid of 4"));
}

TEST(PlanSearch, OverSeveralMicroBatchesHybridComesBeforeWhatReducesEachOfThem) {
  std::vector<std::string> all;
  for (const Choice& choice : choices(settings_of(
           {"--ranks", "4", "--batch", "2", "--prefetch", "1", "--shard-group", "2"}))) {
    if (choice.settings.sharded.accumulate == 1) { continue; }
    all.push_back(
        fmt::format("{}+{} {} {}", choice.traffic, choice.within_group, to_string(choice.strategy),
                    to_string(resolve(choice.settings.sharded.accumulate_mode, choice.strategy))));
  }
  EXPECT_THAT(all,
              testing::ElementsAre("2+0 ddp deferred", "2+0 zero1 deferred", "2+0 zero2 deferred",
                                   "2+5 hybrid deferred", "3+0 zero2 every", "4+6 hybrid every",
                                   "5+0 zero3 deferred", "6+0 zero3 every"));
}

TEST(PlanSearch, OffloadsTheOptimizerWhereNothingElseFits) {
  // Only one mesh: the model stays whole.
  std::vector<const char*> words = {"--ranks",     "2", "--batch", "2",       "--recompute", "none",
                                    "--head-rows", "0", "--mesh",  "shard=2", "--budget"};
  const auto found = [&](const std::string& budget, const std::vector<const char*>& more = {}) {
    std::vector<const char*> all = words;
    all.push_back(budget.c_str());
    all.insert(all.end(), more.begin(), more.end());
    return search(settings_of(all));
  };
  const SearchResult none = found("1", {"--offload", "none"});
  const std::size_t least = none.nearest->plan.fullest().memory.peak_bytes;
  EXPECT_EQ(found(std::to_string(least)).found->choice.settings.sharded.offload, Offload::none);

  const std::string less = std::to_string(least - 1);
  EXPECT_FALSE(found(less, {"--offload", "none"}).found) << "what was typed stays";
  EXPECT_EQ(found("1", {"--offload", "activations"}).tried, none.tried);
  const SearchResult stateless = found("1", {"--optimizer", "sgd", "--momentum", "0"});
  EXPECT_EQ(stateless.nearest->choice.settings.sharded.offload, Offload::none)
      << "nothing to take off";
  const SearchResult offloaded = found(less);
  ASSERT_TRUE(offloaded.found);
  EXPECT_EQ(offloaded.found->choice.settings.sharded.offload, Offload::optimizer);
  EXPECT_GT(offloaded.tried, none.tried);
  EXPECT_GT(offloaded.found->plan.fullest().host_peak_bytes, 0U);
  EXPECT_THAT(command_line_of(offloaded.found->choice), testing::HasSubstr(" --offload optimizer"));
  EXPECT_LE(offloaded.found->plan.fullest().memory.peak_bytes, least - 1);
  EXPECT_EQ(found("1").tried, 2 * none.tried);
}

// With one byte less than the cheapest choice needs, the search takes the next cheapest.
TEST(PlanSearch, ShardsBeforeItRecomputesAndRecomputesBeforeItOffloads) {
  std::size_t budget = std::numeric_limits<std::size_t>::max();
  std::vector<std::string> steps;
  while (steps.size() < 20) {
    const std::string text = std::to_string(budget);
    // Only one way to cut, shard and gather.
    const SearchResult result = search(
        settings_of({"--layers", "6", "--hidden", "64", "--heads", "2", "--vocab", "600", "--seq",
                     "256", "--batch", "1", "--mesh", "shard=1", "--budget", text.c_str()}));
    if (!result.found) { break; }
    const Settings& s = result.found->choice.settings;
    if (result.found->choice.strategy == Strategy::ddp) {
      steps.push_back(fmt::format("{} {}{}", s.recompute.describe(), s.head_rows,
                                  s.sharded.offload == Offload::optimizer ? " offload" : ""));
    }
    budget = result.found->plan.fullest().memory.peak_bytes - 1;
  }
  EXPECT_THAT(steps,
              testing::ElementsAre("none 0", "none 64", "layer-norm 0", "layer-norm 64", "gelu 0",
                                   "gelu 64", "gelu,layer-norm 0", "gelu,layer-norm 64", "block 0",
                                   "block 64", "block 0 offload"));
}

TEST(PlanSearch, GivenRecomputeAndHeadRowsStay) {
  const SearchResult typed =
      search(settings_of({"--budget", "1", "--recompute", "gelu", "--head-rows", "100"}));
  EXPECT_EQ(typed.nearest->choice.settings.recompute.describe(), "gelu");
  EXPECT_EQ(typed.nearest->choice.settings.head_rows, 100);
  Choice choice = typed.nearest->choice;
  EXPECT_THAT(command_line_of(choice), testing::HasSubstr(" --recompute gelu --head-rows 100 "));
}

// A pipeline stays busy with four micro-batches per place, or two with two stages per rank.
TEST(PlanSearch, InterleavesAPipelineThatHasTooFewMicroBatches) {
  const auto first = [](const char* layers, const char* samples, std::vector<const char*> more) {
    more.insert(more.end(), {"--ranks", "4", "--mesh", "pipe=4", "--layers", layers, "--batch",
                             samples, "--prefetch", "1"});
    const Choice choice = choices(settings_of(more)).front();
    const Settings& s = choice.settings;
    return fmt::format("{}x{}{}", s.batch, s.sharded.accumulate, describe_parallel(s));
  };
  EXPECT_EQ(first("16", "16", {}), "1x16, schedule 1f1b");
  EXPECT_EQ(first("16", "8", {}), "1x8, schedule interleaved of 2 stages a rank");
  EXPECT_EQ(first("16", "4", {}), "1x4, schedule interleaved of 4 stages a rank");
  EXPECT_EQ(first("8", "4", {}), "1x4, schedule interleaved of 2 stages a rank");
  EXPECT_EQ(first("7", "4", {}), "1x4, schedule 1f1b") << "each stage needs a layer";
  EXPECT_EQ(first("16", "6", {}), "1x6, schedule 1f1b") << "4 do not divide 6";
  EXPECT_EQ(first("16", "8", {"--schedule", "gpipe"}), "1x8, schedule gpipe");
  EXPECT_THAT(command_line_of(choices(settings_of({"--ranks", "2", "--mesh", "pipe=2", "--batch",
                                                   "4", "--budget", "1GiB"}))
                                  .front()),
              testing::HasSubstr(" --mesh pipe=2 --schedule interleaved --chunks 2"));
}

std::vector<std::string> meshes(const char* ranks, const char* heads) {
  std::vector<std::string> all;
  for (const Settings& split :
       split_settings(settings_of({"--ranks", ranks, "--layers", "1", "--hidden", "60", "--heads",
                                   heads, "--batch", "1"}),
                      8)) {
    all.push_back(mesh_words(split.sharded.mesh));
  }
  return all;
}

TEST(PlanSearch, SplitsLayersByAnyNumberThatStaysWithinAMachine) {
  EXPECT_THAT(meshes("3", "3"), testing::ElementsAre("tensor=3"));
  EXPECT_THAT(meshes("6", "6"),
              testing::ElementsAre("shard=3,tensor=2", "shard=2,tensor=3", "tensor=6"));
  EXPECT_THAT(meshes("6", "2"), testing::ElementsAre("shard=3,tensor=2")) << "two heads";
  EXPECT_THAT(meshes("12", "6"), testing::ElementsAre("shard=6,tensor=2", "shard=3,tensor=4"))
      << "with groups of 3 or 6, ranks 6 and 7 would share one with ranks of the second machine";
}

// A tied table that places along pipe share cannot be updated by the host: no mesh with pipe then.
TEST(PlanSearch, SkipsInventedMeshesThatCannotBe) {
  const SearchResult result = search(settings_of(
      {"--model", "gpt2", "--ranks", "8", "--offload", "optimizer", "--budget", "300MiB"}));
  ASSERT_TRUE(result.found);
  EXPECT_EQ(mesh_words(result.found->choice.settings.sharded.mesh).find("pipe"), std::string::npos);
  EXPECT_LE(result.found->plan.fullest().memory.peak_bytes, std::size_t{300} << 20);
  EXPECT_NO_THROW((void)search(settings_of(
      {"--ranks", "4", "--offload", "activations", "--recompute", "block", "--budget", "4MiB"})))
      << "nor can boundaries on the host";
}

TEST(PlanSearch, ThrowsWhyNoChoiceCanBe) {
  EXPECT_THROW((void)search(settings_of(
                   {"--ranks", "4", "--mesh", "pipe=4", "--layers", "3", "--budget", "1GiB"})),
               ConfigError);
}

// Whatever was tried: by planning each of the choices.
TEST(PlanSearch, TheNearestNeedsTheLeastOfAllThatWereTried) {
  const Settings asked =
      settings_of({"--ranks",   "4",    "--layers", "2", "--hidden",    "32",   "--heads",     "4",
                   "--seq",     "64",   "--batch",  "2", "--recompute", "none", "--head-rows", "0",
                   "--offload", "none", "--budget", "1"});
  const SearchResult result = search(asked);
  ASSERT_TRUE(result.nearest);
  EXPECT_TRUE(result.skipped_meshes);
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::size_t tried = 0;
  for (const Choice& choice : choices(asked)) {
    least =
        std::min(least, plan_asked(choice.settings, choice.strategy).fullest().memory.peak_bytes);
    ++tried;
  }
  EXPECT_EQ(result.tried, tried);
  EXPECT_EQ(result.nearest->plan.fullest().memory.peak_bytes, least);
}

TEST(PlanSearch, OneRankSendsNothing) {
  for (const Choice& choice : choices(settings_of({}))) { EXPECT_EQ(choice.traffic, 0); }
}

TEST(PlanSearch, SkipsImpossibleMicroBatches) {
  // The limit is 2^30 tokens: ten of these samples.
  const SearchResult result = search(
      settings_of({"--seq", "100000000", "--batch", "8", "--accumulate", "2", "--budget", "1PiB"}));
  ASSERT_TRUE(result.found);
  EXPECT_EQ(result.found->choice.settings.batch, 8);
}

TEST(PlanSearch, CommandsAreForTheLauncherWhereRanksAreProcesses) {
  Choice choice{settings_of({"--model", "gpt2", "--ranks", "1024", "--budget", "24GiB"}),
                Strategy::zero3};
  EXPECT_EQ(command_line_of(choice),
            "mpirun -n 1024 tessera train --data PATH --model gpt2 --strategy zero3 --batch 4 "
            "--accumulate 1 --prefetch 1 --budget 24GiB");
  choice = {settings_of({"--params", "7e9", "--precision", "bf16", "--budget", "1000"}),
            Strategy::ddp};
  EXPECT_EQ(command_line_of(choice),
            "tessera plan --ranks 1 --comm local --params 7000000000 --strategy ddp --accumulate 1 "
            "--precision bf16 --budget 1000");
  choice = {settings_of({"--ranks", "2", "--budget", "1GiB", "--prefetch-backward", "2",
                         "--reshard", "after-backward", "--persist", "5000"}),
            Strategy::zero3};
  EXPECT_EQ(command_line_of(choice),
            "tessera train --data PATH --ranks 2 --model gpt-nano --strategy zero3 --batch 4 "
            "--accumulate 1 --prefetch 1 --prefetch-backward 2 --reshard after-backward "
            "--persist 5000 --budget 1GiB");
  choice = {
      settings_of({"--ranks", "512", "--model", "gpt2", "--budget", "1GiB", "--shard-group", "8"}),
      Strategy::hybrid};
  EXPECT_EQ(command_line_of(choice),
            "mpirun -n 512 tessera train --data PATH --model gpt2 --strategy hybrid --batch 4 "
            "--accumulate 1 --shard-group 8 --prefetch 1 --budget 1GiB");
}

}  // namespace
}  // namespace tessera::tools::plan_search_test

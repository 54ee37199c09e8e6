// Tests parts of the command without running it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/rules/option_list.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tools/common/table.hpp"
#include "tools/compare/comparison.hpp"
#include "tools/options/command_line.hpp"
#include "tools/options/job_options.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/option_table.hpp"
#include "tools/options/option_values.hpp"
#include "tools/options/option_words.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/train/init_file.hpp"
#include "tools/train/progress.hpp"
#include "tools/train/promises.hpp"

namespace tessera::tools::parts_test {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.report.step = step;
  record.report.loss = 2.5;
  record.tokens_per_second = 1000;
  record.peak_bytes = {1 << 20, 2 << 20};
  return record;
}

std::string shown(Progress::Output output, std::int64_t steps) {
  const std::unique_ptr<std::FILE, CloseFile> file{std::tmpfile()};
  {
    Progress progress{file.get(), output, "run ", steps};
    for (std::int64_t step = 1; step <= steps; ++step) { progress.show(record_of(step)); }
  }
  EXPECT_EQ(std::fseek(file.get(), 0, SEEK_SET), 0);
  std::string text;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    text += static_cast<char>(c);
  }
  return text;
}

TEST(ProgressTest, LinesComeEveryTenthOfTheRun) {
  const std::string text = shown(Progress::Output::lines, 100);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);  // step 1 and each tenth
  EXPECT_NE(text.find("run step 100/100  loss 2.5000  1000 tokens/s  peak 2.00 MiB"),
            std::string::npos)
      << text;
}

TEST(ProgressTest, ABarIsDrawnOverAndLeftOnANewLine) {
  const std::string text = shown(Progress::Output::terminal, 2);
  EXPECT_NE(text.find("\r\033[Krun [======= "), std::string::npos) << text;
  EXPECT_NE(text.find("=] 2/2  loss"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

TEST(ProgressTest, AResumedRunIsShownAtOnce) {
  const std::unique_ptr<std::FILE, CloseFile> file{std::tmpfile()};
  {
    Progress progress{file.get(), Progress::Output::terminal, "", 100};
    progress.show(record_of(42));
  }
  EXPECT_GT(std::ftell(file.get()), 0);
}

TEST(ProgressTest, TimesReadWell) {
  EXPECT_EQ(format_time(0), "0:00");
  EXPECT_EQ(format_time(67.4), "1:07");
  EXPECT_EQ(format_time(3 * 3600 + 5 * 60), "3:05:00");
}

TEST(TableTest, AlignsColumns) {
  Table table{{"name", "n"}};
  table.add({"a", "10"});
  table.add({"longer", "7"});
  EXPECT_EQ(table.text(), "name     n\n----------\na       10\nlonger   7\n");
  EXPECT_THROW(table.add({"one cell"}), ContractError);
}

TEST(OptionTest, EveryDefaultIsAValueThatTheOptionTakes) {
  for (const OptionRow& row : option_table()) {
    if (row.preset.empty()) { continue; }
    Settings settings;
    EXPECT_NO_THROW(row.apply(settings, std::string{row.preset})) << row.name;
  }
}

Settings asked(CommChoice comm, int ranks) {
  const char* const words[] = {"train"};
  Settings settings = parse_command_line(words).settings;
  settings.comm = comm;
  settings.ranks = ranks;
  return settings;
}

const LaunchedJob kJobOfFour{"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", 2, 4};
const LaunchedJob kJobOfOne{"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", 0, 1};

TEST(SettleTest, AutoIsMpiInAJobElseThreads) {
  const auto settled = [](int ranks, const std::optional<LaunchedJob>& job, bool has_mpi) {
    const Settings settings = settle(asked(CommChoice::automatic, ranks), job, has_mpi);
    return std::pair{settings.comm, settings.ranks};
  };
  EXPECT_EQ(settled(0, {}, true), std::pair(CommChoice::local, 1));
  EXPECT_EQ(settled(3, {}, true), std::pair(CommChoice::local, 3));
  EXPECT_EQ(settled(0, kJobOfFour, true), std::pair(CommChoice::mpi, 4));
  EXPECT_EQ(settled(4, kJobOfFour, true), std::pair(CommChoice::mpi, 4));
  EXPECT_EQ(settled(0, kJobOfOne, true), std::pair(CommChoice::mpi, 1));
  EXPECT_EQ(settled(2, kJobOfOne, false), std::pair(CommChoice::local, 2));
  EXPECT_EQ(settled(2, kJobOfOne, true), std::pair(CommChoice::local, 2))
      << "a job of one has nothing to join";
}

TEST(SettleTest, CommLocalJoinsNoJob) {
  for (const std::optional<LaunchedJob>& job : {std::optional<LaunchedJob>{}, {kJobOfFour}}) {
    const Settings settings = settle(asked(CommChoice::local, 2), job, /*has_mpi=*/true);
    EXPECT_EQ(std::pair(settings.comm, settings.ranks), std::pair(CommChoice::local, 2));
  }
}

TEST(SettleTest, OnCudaAutoIsNcclInAJobElseThreads) {
  const auto settled = [](int ranks, const std::optional<LaunchedJob>& job) {
    Settings settings = asked(CommChoice::automatic, ranks);
    settings.world.device = DeviceKind::cuda;
    settings = settle(settings, job, /*has_mpi=*/true);
    return std::pair{settings.comm, settings.ranks};
  };
  EXPECT_EQ(settled(0, {}), std::pair(CommChoice::local, 1));
  EXPECT_EQ(settled(8, {}), std::pair(CommChoice::local, 8));
  EXPECT_EQ(settled(8, kJobOfOne), std::pair(CommChoice::local, 8));
  EXPECT_EQ(settled(0, kJobOfFour), std::pair(CommChoice::nccl, 4));
  EXPECT_EQ(settled(0, kJobOfOne), std::pair(CommChoice::nccl, 1));
}

TEST(SettleTest, BlocksLeftToNcclNeedNoNccl) {
  Settings settings = asked(CommChoice::local, 2);
  settings.given = {"--nccl-min-ctas", "--nccl-max-ctas"};
  EXPECT_NO_THROW((void)settle(settings, {}, /*has_mpi=*/true));
  settings.world.nccl.max_ctas = 8;
  settings.changed = {"--nccl-max-ctas"};
  EXPECT_THROW((void)settle(settings, {}, /*has_mpi=*/true), ConfigError);
}

TEST(SettleTest, HybridsGroupsAreTheMachinesRanksIfTheLauncherSaysSo) {
  const auto group = [](std::optional<LaunchedJob> job, int ranks, int typed) {
    Settings settings = asked(CommChoice::automatic, ranks);
    settings.sharded.strategy = Strategy::hybrid;
    settings.sharded.shard_group = typed;
    return settle(settings, job, /*has_mpi=*/true).sharded.shard_group;
  };
  const auto refusal = [&](std::optional<LaunchedJob> job, int ranks, int typed) {
    try {
      (void)group(job, ranks, typed);
    } catch (const ConfigError& error) { return std::string{error.what()}; }
    return std::string{"nothing"};
  };
  LaunchedJob job = kJobOfFour;
  EXPECT_EQ(group({}, 6, 0), 6) << "threads";
  EXPECT_EQ(group({}, 6, 2), 2);
  EXPECT_EQ(group(job, 0, 4), 4);
  EXPECT_EQ(
      refusal(job, 0, 0),
      "hybrid shards among the ranks of a machine, and mpirun (Open MPI) does not report their "
      "number; give --shard-group S, one of 1, 2, 4");
  job.on_machine = 2;
  EXPECT_EQ(group(job, 0, 0), 2);
  job.on_machine = 3;
  EXPECT_EQ(
      refusal(job, 0, 0),
      "hybrid shards among the ranks of a machine, and groups of the 3 that mpirun (Open MPI) "
      "has started on this one do not make up 4; give --shard-group S, one of 1, 2, 4");
  EXPECT_EQ(refusal(job, 0, 3),
            "`shard_group` is 3 and does not divide the number of ranks, 4: choose one of 1, 2, 4");
  EXPECT_EQ(settle(asked(CommChoice::automatic, 0), job, true).sharded.shard_group, 0) << "ddp";
}

TEST(PlacementTest, DefaultGroupsAreMachinesOnEveryRank) {
  const auto refusal = [](std::vector<std::size_t> groups, std::string_view machines,
                          std::size_t rank = 0, bool typed = false) {
    Settings settings = asked(CommChoice::mpi, static_cast<int>(groups.size()));
    settings.sharded.shard_group = static_cast<int>(groups[rank]);
    if (typed) { settings.given = {"--shard-group"}; }
    try {
      std::vector<std::string> by_rank;
      for (const char machine : machines) { by_rank.emplace_back(1, machine); }
      check_placement(settings, {std::move(groups), by_rank});
    } catch (const ConfigError& error) { return std::string{error.what()}; }
    return std::string{"nothing"};
  };
  EXPECT_EQ(refusal({2, 2, 2, 2}, "aabb"), "nothing");
  EXPECT_EQ(refusal({2, 2, 2, 2}, "aaaa"), "nothing") << "two containers of a machine";
  EXPECT_EQ(refusal({0, 0, 0, 0}, "abab"), "nothing") << "no hybrid";
  EXPECT_EQ(refusal({2, 2, 2, 2}, "abab", 0, /*typed=*/true), "nothing");
  EXPECT_EQ(refusal({2, 2, 2, 2, 2, 2}, "aaaabb"), "nothing") << "two launches on one";
  EXPECT_EQ(refusal({2, 2, 2, 2, 2, 2}, "aabbaa"), "nothing");
  EXPECT_EQ(refusal({2, 2, 2, 2}, "aaba"),
            "hybrid shards among the ranks of a machine, and ranks 2 to 3 are not on one, as where "
            "ranks are dealt out in turn; give --shard-group S, one of 1, 2, 4, or place them "
            "machine after machine (mpirun --map-by slot, srun --distribution block)");
  EXPECT_THAT(refusal({4, 4, 4, 4}, "aabb"), testing::HasSubstr("ranks 0 to 3 are not on one"));
  for (const std::size_t rank : {0U, 4U, 7U}) {
    EXPECT_EQ(refusal({4, 4, 4, 4, 2, 2, 2, 2}, "aaaabbcc", rank),
              "hybrid shards among the ranks of a machine, of which there are 4 with rank 0 and 2 "
              "with rank 4; give --shard-group S, one of 1, 2, 4, 8, or start as many on each");
  }
}

TEST(InitFileTest, RanksWithOtherBytesAreNamed) {
  const auto refusal = [](const std::vector<std::string>& hashes) {
    Settings settings;
    settings.init = "w.safetensors";
    try {
      check_same_init(settings, hashes);
    } catch (const ConfigError& error) { return std::string{error.what()}; }
    return std::string{"nothing"};
  };
  EXPECT_EQ(refusal({"a", "a", "a"}), "nothing");
  EXPECT_EQ(refusal({"", ""}), "nothing");
  EXPECT_THAT(refusal({"a", "a", "b"}), testing::HasSubstr("--init: rank 2 would"));
  EXPECT_EQ(
      refusal({"a", "b", "a", "c"}),
      "--init: ranks 1, 3 would start from weights that differ from rank 0's (w.safetensors); "
      "give every machine the same file");
  std::vector<std::string> many(12, "b");
  many[0] = "a";
  EXPECT_THAT(refusal(many), testing::HasSubstr("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more would"));
}

TEST(InitFileTest, OtherBytesOrAnotherSizeChangeTheFingerprint) {
  const test::TemporaryFolder folder;
  const auto of = [&](std::string_view bytes) {
    return fingerprint_of_weights(folder.write("w", bytes).string());
  };
  EXPECT_EQ(fingerprint_of_weights(""), "");
  EXPECT_EQ(of("weights"), of("weights"));
  EXPECT_NE(of("weights"), of("weightz"));
  EXPECT_NE(of("weights"), of(std::string_view{"weights\0", 8}));
  EXPECT_NE(of(""), of("w"));
  EXPECT_THROW((void)fingerprint_of_weights((folder / "none").string()), FormatError);

  // Too large to read whole: only its ends are read.
  const std::string large = (folder / "large").string();
  const auto with = [&](std::uintmax_t bytes, std::uintmax_t at) {
    std::filesystem::remove(large);
    std::ofstream{large} << "header";
    std::filesystem::resize_file(large, bytes);
    std::fstream file{large, std::ios::in | std::ios::out | std::ios::binary};
    file.seekp(static_cast<std::streamoff>(at)).put('x');
    file.close();
    return fingerprint_of_weights(large);
  };
  constexpr std::uintmax_t kBytes = (std::uintmax_t{300} << 20) + 5;
  const std::string same = with(kBytes, 0);
  EXPECT_EQ(with(kBytes, 0), same);
  EXPECT_NE(with(kBytes, kBytes - 1), same);
  EXPECT_NE(with(kBytes + 1, 0), same);
}

TEST(SettleTest, AGraphNeedsACudaDeviceAndRanksApart) {
  const auto refusal = [](DeviceKind device, int ranks, const std::optional<LaunchedJob>& job,
                          std::int64_t steps = 3) {
    Settings settings = asked(CommChoice::automatic, ranks);
    settings.world.device = device;
    settings.graph = true;
    settings.steps = steps;
    try {
      (void)settle(settings, job, /*has_mpi=*/true);
    } catch (const ConfigError& error) { return std::string{error.what()}; }
    return std::string{"nothing"};
  };
  EXPECT_THAT(refusal(DeviceKind::cpu, 1, {}), testing::HasSubstr("only a CUDA device"));
  EXPECT_THAT(refusal(DeviceKind::cuda, 2, {}), testing::HasSubstr("2 ranks are threads"));
  EXPECT_EQ(refusal(DeviceKind::cuda, 1, {}), "nothing");
  EXPECT_EQ(refusal(DeviceKind::cuda, 0, kJobOfFour), "nothing");
  EXPECT_THAT(refusal(DeviceKind::cuda, 1, {}, 2), testing::HasSubstr("no effect on --steps 2"));
}

TEST(SettleTest, WithoutALauncherSaysHowToStartTheSameCommandWithOne) {
  const auto refusal = [](int ranks) -> std::string {
    Settings settings = asked(CommChoice::nccl, ranks);
    settings.world.device = DeviceKind::cuda;
    settings.command_line = "tessera train --data text.txt --device cuda --comm nccl";
    try {
      (void)settle(settings, {}, /*has_mpi=*/true);
    } catch (const ConfigError& error) { return error.what(); }
    return "nothing";
  };
  using testing::HasSubstr;
  EXPECT_THAT(
      refusal(8),
      AllOf(HasSubstr("torchrun --nproc-per-node 8 --no-python tessera train --data text.txt "
                      "--device cuda --comm nccl; or"),
            HasSubstr("mpirun -n 8 ..."), HasSubstr("srun -n 8 ...")));
  EXPECT_THAT(refusal(0), HasSubstr("torchrun --nproc-per-node N --no-python tessera"));
}

TEST(SettleTest, RefusalsSayWhatToDo) {
  const auto refusal = [](CommChoice comm, int ranks, const std::optional<LaunchedJob>& job,
                          bool has_mpi) -> std::string {
    try {
      (void)settle(asked(comm, ranks), job, has_mpi);
    } catch (const ConfigError& error) { return error.what(); }
    return "nothing";
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal(CommChoice::automatic, 0, kJobOfFour, false),
              AllOf(HasSubstr("one of 4 processes"), HasSubstr("this build has no MPI"),
                    HasSubstr("libopenmpi-dev"), HasSubstr("--ranks 4")));
  EXPECT_THAT(refusal(CommChoice::mpi, 0, {}, false), HasSubstr("this build has no MPI"));
  EXPECT_THAT(refusal(CommChoice::mpi, 6, {}, true), HasSubstr("start it with mpirun -n 6"));
  EXPECT_THAT(refusal(CommChoice::mpi, 3, kJobOfFour, true), HasSubstr("start 3 processes"));
  EXPECT_THAT(
      refusal(CommChoice::automatic, 3, kJobOfFour, true),
      AllOf(HasSubstr("one of 4 processes (OMPI_COMM_WORLD_SIZE)"), HasSubstr("use --comm local"),
            HasSubstr("if it did not, unset OMPI_COMM_WORLD_SIZE")));
  EXPECT_THAT(refusal(CommChoice::local, 257, {}, true), HasSubstr("from 1 to 256"));
  EXPECT_THAT(refusal(CommChoice::nccl, 4, kJobOfFour, true), HasSubstr("--comm local or mpi"));
}

TEST(OptionTest, HelpNamesEveryOptionInHundredColumns) {
  for (const std::string command : {"train", "compare", "plan", "scale"}) {
    const std::string help = help_text(command);
    for (const OptionRow& row : option_table()) {
      if (!applies_to(row, command)) { continue; }
      EXPECT_NE(help.find(row.name), std::string::npos) << row.name;
    }
    for (std::size_t begin = 0; begin < help.size();) {
      const std::size_t end = help.find('\n', begin);
      EXPECT_LE(end - begin, 100U) << help.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(OptionTest, NearestNamesAreFound) {
  const std::vector<std::string> known = {"--batch", "--beta1", "--steps"};
  EXPECT_EQ(nearest("--bathc", known), "--batch");
  EXPECT_EQ(nearest("--step", known), "--steps");
  EXPECT_EQ(nearest("--something-else", known), "");
}

TEST(RunResultTest, MedianLeavesOutTheFirstTwoSteps) {
  RunResult result;
  for (const double seconds : {9.0, 8.0, 1.0, 4.0, 2.0, 3.0}) {
    StepRecord record;
    record.seconds = seconds;
    result.steps.push_back(record);
  }
  EXPECT_DOUBLE_EQ(result.seconds_per_step(), 2.5);
  result.steps.resize(2);
  EXPECT_DOUBLE_EQ(result.seconds_per_step(), 8.5);
}

TEST(ComparisonTest, ALossThatDiffersInItsLastBitIsNamed) {
  std::vector<RunResult> results(2);
  results[0].strategy = Strategy::ddp;
  results[1].strategy = Strategy::zero3;
  for (std::int64_t step = 1; step <= 3; ++step) {
    results[0].steps.push_back(record_of(step));
    results[1].steps.push_back(record_of(step));
  }
  EXPECT_NE(compare_losses(results).find("bit-identical"), std::string::npos);
  results[1].steps[1].report.loss = std::nextafter(2.5, 3.0);
  EXPECT_NE(compare_losses(results).find("ddp and zero3 differ from step 2"), std::string::npos);
}

TEST(ComparisonTest, ReportsHybridsOrderOfSumsWithoutHidingOtherDifferences) {
  std::vector<RunResult> results(3);
  results[0].strategy = Strategy::hybrid;
  results[1].strategy = Strategy::ddp;
  results[2].strategy = Strategy::zero3;
  for (RunResult& result : results) { result.steps = {record_of(1), record_of(2)}; }
  EXPECT_EQ(compare_losses(results),
            "losses: bit-identical under all 3 strategies in all 2 steps (2.5000 -> 2.5000)");
  results[0].steps[1].report.loss = 2.5 + 2.5e-7;
  EXPECT_EQ(compare_losses(results),
            "losses: bit-identical under 2 strategies in all 2 steps (2.5000 -> 2.5000); hybrid, "
            "which adds gradients group by group, within 1.0e-07 of ddp");
  results[2].steps[1].report.loss = std::nextafter(2.5, 3.0);
  EXPECT_NE(compare_losses(results).find("ddp and zero3 differ from step 2"), std::string::npos);
  results.resize(2);
  EXPECT_EQ(compare_losses(results),
            "losses: ddp in all 2 steps (2.5000 -> 2.5000); hybrid, which adds gradients group by "
            "group, within 1.0e-07 of ddp");
}

/// The error for `losses` (by strategy and step) of four ranks, or nothing.
std::string judged(const Settings& settings, const std::vector<Strategy>& strategies,
                   const std::vector<std::vector<double>>& losses) {
  std::vector<RunResult> results(strategies.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].strategy = strategies[i];
    for (const double loss : losses[i]) {
      results[i].steps.push_back(record_of(std::ssize(results[i].steps) + 1));
      results[i].steps.back().report.loss = loss;
    }
  }
  try {
    require_same_losses(settings, results);
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(PromiseTest, LossesAreCheckedAgainstThePromiseOnly) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  const double other = std::nextafter(2.0, 3.0);
  Settings settings;
  settings.ranks = 4;
  settings.sharded.shard_group = 2;
  const std::vector<Strategy> plain = {Strategy::ddp, Strategy::zero3};
  EXPECT_EQ(judged(settings, plain, {{3, 2, none}, {3, 2, -none}}), "");
  EXPECT_THAT(judged(settings, plain, {{3, 2}, {3, other}}),
              ::testing::HasSubstr("ddp and zero3 differ from step 2 on"));
  const std::vector<Strategy> grouped = {Strategy::hybrid, Strategy::ddp, Strategy::zero3};
  EXPECT_EQ(judged(settings, grouped, {{3, other}, {3, 2}, {3, 2}}), "");
  EXPECT_THAT(judged(settings, grouped, {{3, 2}, {3, 2}, {3, other}}),
              ::testing::HasSubstr("ddp and zero3 differ from step 2 on"));
  EXPECT_THAT(judged(settings, grouped, {{other, 2}, {3, 2}, {3, 2}}),
              ::testing::HasSubstr("hybrid and ddp differ from step 1 on"));
  for (const int whole : {1, 4}) {
    settings.sharded.shard_group = whole;
    EXPECT_THAT(judged(settings, grouped, {{3, other}, {3, 2}, {3, 2}}),
                ::testing::HasSubstr("hybrid and ddp differ from step 2 on"));
  }
  settings.comm = CommChoice::nccl;
  EXPECT_EQ(judged(settings, plain, {{3, 2}, {3, other}}), "");
}

TEST(PromiseTest, AByteOffThePlanIsAnError) {
  Job job;
  job.plans = {{Strategy::zero3, std::vector<RankPlan>(2)}};
  job.plans[0].ranks[0].ranks = {0};
  job.plans[0].ranks[0].memory.peak_bytes = 300;
  RankPlan& others = job.plans[0].ranks[1];
  others.rank = 1;
  others.count = 2;
  others.ranks = {1, 2};
  others.memory.peak_bytes = 200;
  others.host_peak_bytes = 50;
  RunResult result;
  result.strategy = Strategy::zero3;
  result.ranks.resize(3);
  result.ranks[0].peak_bytes = 300;
  for (const std::size_t rank : {1U, 2U}) {
    result.ranks[rank].peak_bytes = 200;
    result.ranks[rank].host_peak_bytes = 50;
  }
  EXPECT_NO_THROW(require_as_planned(job, result));
  const auto refused = [&](const std::string& text) {
    try {
      require_as_planned(job, result);
    } catch (const Error& error) { return std::string{error.what()}.starts_with(text); }
    return false;
  };
  result.ranks[2].host_peak_bytes = 49;
  EXPECT_TRUE(refused("under zero3 rank 2 held 49 bytes in its host pool, but 50 were planned"));
  result.ranks[2].peak_bytes = 201;
  EXPECT_TRUE(refused("under zero3 rank 2 held 201 bytes, but 200 were planned"));
}

TEST(PromiseTest, DivergenceIsANonFiniteLossOrSkippedSteps) {
  const auto text = [](double loss, std::int64_t skipped, float scale, float next) {
    return divergence({.step = 9,
                       .loss = loss,
                       .loss_scale = scale,
                       .next_loss_scale = next,
                       .skipped = skipped > 0,
                       .skipped_in_a_row = skipped});
  };
  EXPECT_EQ(text(2, 0, 1, 1), "");
  EXPECT_EQ(text(2, 1, 65'536, 32'768), "") << "a scale is looked for";
  EXPECT_EQ(text(2, 1, 1, 1), "the last step was skipped, as their gradient was not finite");
  EXPECT_EQ(text(2, 2, 65'536, 32'768),
            "the last 2 steps were skipped, as their gradient was not finite");
  EXPECT_EQ(text(HUGE_VAL, 0, 1, 1), "the loss of step 9 is infinite");
  EXPECT_EQ(text(HUGE_VAL, 3, 1, 1),
            "the loss of step 9 is infinite, and the last 3 steps were skipped");
}

TEST(OptionTest, TheDeadlineIsThatOfEveryWorld) {
  const std::vector<std::pair<const char*, int>> table = {
      {"300", 300'000}, {"1.5", 1500}, {"0.3", 300}, {"1e-5", 1}};
  for (const auto& [text, ms] : table) {
    for (const char* command : {"train", "compare", "sample"}) {
      const char* const words[] = {command, "--deadline", text};
      const Settings settings = parse_command_line(words).settings;
      EXPECT_EQ(world_options(settings).deadline.count(), ms) << text;
    }
  }
}

TEST(OptionTest, FieldsOfTheLibraryAreTheOptionsThatSetThem) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"rank 1: persist_elems is 3", "rank 1: --persist is 3"},
      {"set `offload` to none, offload it", "set --offload to none, offload it"},
      {"leave `max_skips` alone: max_skips.", "leave --max-skips alone: --max-skips."},
      {"`loss_scaling.initial` is 0", "--loss-scale is 0"},
      {"`tuning.spared_multiprocessors` is 7", "--spare-multiprocessors is 7"},
      {"`products` is p", "--products is p"},
      {"set `convert_moments`", "set --resume-moments convert"},
      {"/home/top_p/x.txt, a_top_p, top_p.txt, 'top_p'",
       "/home/top_p/x.txt, a_top_p, top_p.txt, 'top_p'"},
      {"", ""},
  };
  for (const auto& [message, said] : table) { EXPECT_EQ(with_options_for_fields(message), said); }
}

Settings train_with(std::vector<const char*> words) {
  words.insert(words.begin(), "train");
  return parse_command_line(words).settings;
}

TEST(OptionTest, OptionsOfTheModelSetTheMemberThatTheyName) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"--shard-group", "7"},       {"--precision", "bf16"},
      {"--accumulate", "7"},        {"--master-weights", "remainder"},
      {"--gradient-dtype", "bf16"}, {"--reduce-dtype", "bf16"},
      {"--loss-scale", "off"},      {"--max-skips", "7"},
      {"--prefetch", "7"},          {"--reshard", "after-backward"},
      {"--persist", "7"},           {"--accumulate-mode", "every"},
      {"--offload", "state"},       {"--offload-keep", "0.5"},
      {"--prefetch-backward", "7"},
  };
  const ModelOptions plain = train_with({}).sharded;
  for (const auto& [option, value] : table) {
    const ModelOptions options = train_with({option, value}).sharded;
    std::vector<std::string_view> changed;
    engine::for_each_model_option([&](const auto& one) {
      if (one.of(options) != one.of(plain)) { changed.push_back(one.name); }
    });
    EXPECT_THAT(changed, testing::ElementsAre(field_of(option))) << option;
  }
}

TEST(OptionTest, OptionsOfTheWorldSetTheirMembers) {
  const WorldOptions numbers =
      train_with({"--threads", "2", "--host-threads", "3", "--nccl-min-ctas", "4",
                  "--nccl-max-ctas", "5", "--spare-multiprocessors", "6", "--budget", "7"})
          .world;
  EXPECT_EQ(numbers.threads, 2);
  EXPECT_EQ(numbers.host_threads, 3);
  EXPECT_EQ(numbers.nccl.min_ctas, 4);
  EXPECT_EQ(numbers.nccl.max_ctas, 5);
  EXPECT_EQ(numbers.tuning.spared_multiprocessors, 6);
  EXPECT_EQ(numbers.budget_bytes, 7U);
  const auto switched = [](const char* option) {
    const WorldOptions world = train_with({option}).world;
    return std::tuple{world.deterministic, world.nccl.windows, world.nondeterministic_attention};
  };
  EXPECT_EQ(switched("--deterministic"), std::tuple(true, false, false));
  EXPECT_EQ(switched("--nccl-windows"), std::tuple(false, true, false));
  EXPECT_EQ(switched("--nondeterministic-attention"), std::tuple(false, false, true));
}

TEST(OptionTest, TheRunsSeedIsThatOfRoundingToo) {
  EXPECT_EQ(optimizer_options(train_with({"--seed", "7"})).rounding_seed, 7U);
}

/// The options of each rank, if rank r is started with the r-th of `commands`.
std::vector<std::string> options_of(const std::vector<std::vector<const char*>>& commands) {
  std::vector<std::string> all;
  for (const auto& words : commands) {
    Job job;
    job.settings = parse_command_line(words).settings;
    all.push_back(job_options(job));
  }
  return all;
}

// What is typed may come from a file or another program: no byte of it may reach the terminal as it
// is, and no error may be pages long.
TEST(CommandLineTest, ErrorsQuoteNoControlCharactersAndNoEndOfText) {
  const std::string evil = "\x1b]0;title\a\r\n\x1b[2J" + std::string(5'000, 'x');
  int refused = 0;
  const auto check = [&](const std::vector<const char*>& arguments) {
    try {
      (void)parse_command_line(arguments);
    } catch (const Error& error) {
      ++refused;
      const std::string text = error.what();
      EXPECT_LT(text.size(), 1'500U) << text.substr(0, 200);
      for (const char c : text) {
        EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7F) << text.substr(0, 200);
      }
    }
  };
  for (const char* const command : {"train", "compare", "plan", "scale", "sample"}) {
    for (const OptionRow& row : option_table()) {
      const std::string name{row.name};
      if (applies_to(row, command)) { check({command, name.c_str(), evil.c_str()}); }
    }
    check({command, ("--" + evil).c_str()});
  }
  check({evil.c_str()});
  EXPECT_GT(refused, 50);
}

TEST(JobOptionsTest, ComparesValuesNotSpelling) {
  EXPECT_NO_THROW(check_same_options(
      options_of({{"train", "--lr", "3e-4", "--strategy", "fsdp", "--log", "a", "--threads", "1"},
                  {"train", "--lr", "0.0003", "--strategy", "zero3", "--budget", "1GiB"}})));
  EXPECT_THROW(check_same_options(options_of({{"train", "--no-shuffle"}, {"train"}})), ConfigError);
}

TEST(JobOptionsTest, EverySharedOptionIsCompared) {
  for (const OptionRow& row : option_table()) {
    if (!row.apply || !applies_to(row, "train")) { continue; }
    Job job;
    job.settings = parse_command_line(std::vector<const char*>{"train"}).settings;
    Job other = job;
    for (auto& [name, value] : other.settings.effective) {
      if (name == row.name) { value += "7"; }
    }
    const std::vector<std::string> own = {"--init", "--data",  "--tokens", "--eval-data", "--log",
                                          "--comm", "--ranks", "--budget", "--config"};
    const bool compared = std::ranges::find(own, row.name) == own.end();
    const std::vector<std::string> options = {job_options(job), job_options(other),
                                              job_options(job), job_options(other)};
    try {
      check_same_options(options);
      EXPECT_FALSE(compared) << row.name;
    } catch (const ConfigError& error) {
      EXPECT_TRUE(compared) << row.name;
      EXPECT_THAT(error.what(), ::testing::StartsWith(std::string{row.name} + ": rank 0 has "));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("ranks 1, 3 have "));
    }
  }
}

TEST(JobOptionsTest, OtherCommandsAreNamedFirst) {
  try {
    check_same_options(options_of({{"train", "--batch", "2"}, {"compare", "--batch", "3"}}));
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "the command: rank 0 has train, and rank 1 has compare; give every process of a "
                 "job the same");
  }
}

}  // namespace
}  // namespace tessera::tools::parts_test

// Runs that are interrupted and continue from their checkpoints.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <set>

#include "cli/divided_checkpoint.hpp"
#include "cli/running_command.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tools/options/command_line.hpp"
#include "tools/train/run_values.hpp"

namespace tessera::test::resume_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string step_name(int step) {
  std::string digits = std::to_string(step);
  return "step-" + std::string(8 - digits.size(), '0') + digits;
}

class Resume : public CommandTest {
 protected:
  /// The arguments of a small run, in which `more` replaces those of the same names.
  [[nodiscard]] Words training(const Words& more) const {
    Words all = small("train");
    for (std::size_t i = 1; i < all.size();) {
      const bool replaced = std::ranges::find(more, all[i]) != more.end();
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(i);
      i = replaced ? static_cast<std::size_t>(all.erase(at, at + 2) - all.begin()) : i + 2;
    }
    return all + more;
  }
  [[nodiscard]] Outcome trained(const Words& more) const { return tessera(training(more)); }
  void train(const Words& more) const {
    const Outcome outcome = trained(more);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  /// Expects a refusal before the first step, whose text has `parts`.
  void refused(const Words& more, const Words& parts) const {
    SCOPED_TRACE(testing::PrintToString(more));
    const Outcome outcome = trained(more);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.out, Not(HasSubstr("step 1/"))) << "something was started";
    for (const std::string& part : parts) { EXPECT_THAT(outcome.err, HasSubstr(part)); }
  }
  /// Step, loss, norm and rate of each line after `before` steps.
  [[nodiscard]] std::string losses(const std::string& name, int before = 0) const {
    std::string all;
    for (const nlohmann::json& line : log(name)) {
      if (line.at("step") <= before) { continue; }
      for (const char* key : {"step", "loss", "grad_norm", "lr", "loss_scale"}) {
        all += line.at(key).dump() + " ";
      }
      all += line.value("eval_loss", nlohmann::json{}).dump() + "\n";
    }
    return all;
  }
  /// Expects the same bytes in both folders of a step, except for their provenance.
  void expect_same(const std::string& one, const std::string& other) const {
    ASSERT_EQ(names_in(one), names_in(other));
    for (const std::string& name : names_in(one)) {
      if (name == "provenance.json") { continue; }
      EXPECT_TRUE(read_file(path(one + "/" + name)) == read_file(path(other + "/" + name)))
          << one << "/" << name;
    }
  }
  static void flip_a_bit(const std::string& file) {
    std::string bytes = read_file(file);
    bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 0x10);
    write_file(file, bytes);
  }
  [[nodiscard]] Words command(const Words& more) const { return Words{kCommand} + training(more); }
};

TEST_F(Resume, AResumedRunIsTheUninterruptedOneToTheBit) {
  const std::vector<Words> variants = {
      {"--strategy", "zero3", "--dropout", "0.1", "--accumulate", "2"},
      {"--strategy", "zero2", "--precision", "bf16", "--master-weights", "remainder", "--moments",
       "int8"},
      {"--strategy", "ddp", "--precision", "fp16", "--shard-size", "10KiB"},
      {"--strategy", "hybrid", "--shard-group", "1", "--precision", "bf16", "--rounding",
       "stochastic", "--moments", "bf16", "--no-shuffle"},
      {"--strategy", "zero1", "--offload", "optimizer", "--optimizer", "lion"},
      {"--strategy", "ddp", "--offload", "state"},
      {"--strategy", "dp", "--eval-data", path("text.txt"), "--eval-every", "5", "--batch", "50"}};
  for (const Words& variant : variants) {
    SCOPED_TRACE(testing::PrintToString(variant));
    const Words all = variant + Words{"--lr-schedule", "constant", "--warmup", "8"};
    train(all + Words{"--steps", "12", "--checkpoint", path("a"), "--log", path("a.log")});
    const Words parts =
        all + Words{"--checkpoint", path("b"), "--log", path("b.log"), "--checkpoint-every", "2"};
    train(parts + Words{"--steps", "5"});
    const Outcome resumed = trained(parts + Words{"--steps", "12", "--resume"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(resumed.err, "");
    EXPECT_THAT(resumed.out, AllOf(HasSubstr("resumed from " + path("b/" + step_name(5))),
                                   HasSubstr("steps 6 to 12")));
    EXPECT_EQ(losses("b.log"), losses("a.log"));
    expect_same("b/" + step_name(12), "a/" + step_name(12));
    for (const char* folder : {"a", "b"}) { fs::remove_all(path(folder)); }
  }
}

// Parts of machines without a shared file system, copied into one folder.
TEST_F(Resume, TakesPartsThatLieSideBySide) {
  const Words all = {"--lr-schedule", "constant", "--strategy", "zero3"};
  train(all + Words{"--steps", "6", "--checkpoint", path("a")});
  train(all + Words{"--steps", "4", "--checkpoint", path("whole")});
  const DividedCheckpoint divided{path("whole/" + step_name(4))};
  for (int part : {0, 1}) { divided.write(part, path("b")); }
  const Words resumed = all + Words{"--steps", "6", "--checkpoint", path("b")};
  refused(resumed, {"--checkpoint: " + path("b"), step_name(4)});
  train(resumed + Words{"--resume"});
  expect_same("b/" + step_name(6), "a/" + step_name(6));
  train(all + Words{"--steps", "6", "--checkpoint", path("c"), "--resume-from",
                    path("b/" + step_name(4) + ".part-1")});
  expect_same("c/" + step_name(6), "a/" + step_name(6));

  divided.write(1, path("d"));
  refused(all + Words{"--steps", "6", "--checkpoint", path("d"), "--resume"},
          {"part 0 is missing", "copy the missing parts from the other machines",
           "tessera checkpoint merge"});
  // A newer step with a missing part is not damaged, and stays until someone decides.
  train(all + Words{"--steps", "3", "--checkpoint", path("e")});
  fs::rename(path("e/" + step_name(3)), path("d/" + step_name(3)));
  refused(all + Words{"--steps", "6", "--checkpoint", path("d"), "--resume"},
          {"part 0 is missing", "name an earlier checkpoint"});
  EXPECT_TRUE(fs::exists(path("d/" + step_name(4) + ".part-1")));
  train(all + Words{"--steps", "6", "--checkpoint", path("f"), "--resume-from",
                    path("d/" + step_name(3))});
  expect_same("f/" + step_name(6), "a/" + step_name(6));
}

TEST_F(Resume, WeightsInPartsAreNotTakenForWeights) {
  train({"--steps", "4", "--checkpoint", path("whole")});
  const DividedCheckpoint divided{path("whole/" + step_name(4))};
  for (int part : {0, 1}) { divided.write(part, path("run")); }
  const std::string part = path("run/" + step_name(4) + ".part-0");
  for (const std::string& init : {path("run"), part, part + "/model.safetensors"}) {
    refused({"--steps", "1", "--init", init}, {"--init: " + init, "tessera checkpoint merge"});
  }
  const Outcome exported =
      tessera({"checkpoint", "export", path("run"), "--to", path("w.safetensors")});
  EXPECT_EQ(exported.status, 2);
  EXPECT_THAT(exported.err, AllOf(HasSubstr("in parts"), HasSubstr("tessera checkpoint merge")));
}

// The rate falls along a cosine to the end of the whole run.
TEST_F(Resume, ASignalSavesTheWholeStateForAResume) {
  const Words all = {"--strategy", "zero3", "--steps", "20", "--lr", "0.01"};
  train(all + Words{"--checkpoint", path("a"), "--log", path("a.log")});
  NamedPipe pipe{path("pipe")};
  pipe.fill();  // the first step waits for the reader
  RunningCommand run{command(all + Words{"--checkpoint", path("b"), "--log", path("pipe")}),
                     path("run")};
  ASSERT_TRUE(wait_until([&] { return run.trains(); }));
  run.send(SIGTERM);
  pipe.read_to_end();
  const Outcome outcome = run.wait();
  ASSERT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("its weights are in " + path("b/model.safetensors") +
                                     ", and --resume continues from there"));
  train(all + Words{"--checkpoint", path("b"), "--log", path("b.log"), "--resume"});
  EXPECT_EQ(losses("b.log", 1), losses("a.log", 1));
  expect_same("b/" + step_name(20), "a/" + step_name(20));
}

TEST_F(Resume, ARunThatIsKilledAgainAndAgainIsTheUninterruptedOne) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::minstd_rand draws{seed};
  const Words all = {"--strategy", "zero2", "--steps", "60"};
  train(all + Words{"--checkpoint", path("a"), "--log", path("a.log")});
  const Words again =
      all + Words{"--checkpoint", path("b"), "--log", path("b.log"), "--checkpoint-every", "3"};
  bool begun = false;
  for (int kill = 0; kill < 4; ++kill) {
    const auto lines = log("b.log").size() + 1 + draws() % 12;
    RunningCommand run{command(begun ? again + Words{"--resume"} : again), path("run")};
    (void)wait_until([&] {
      const std::string text = read_file(path("b.log"));
      return run.has_ended() || std::ranges::count(text, '\n') >= static_cast<long>(lines);
    });
    if (!run.has_ended()) { run.send(SIGKILL); }
    const Outcome outcome = run.wait();
    EXPECT_TRUE(outcome.status == -SIGKILL || outcome.status == 0) << outcome.err;
    begun = std::ranges::any_of(names_in("b"),
                                [](const std::string& name) { return name.starts_with("step-"); });
  }
  train(begun ? again + Words{"--resume"} : again);
  EXPECT_EQ(losses("b.log"), losses("a.log"));
  expect_same("b/" + step_name(60), "a/" + step_name(60));
}

TEST_F(Resume, OtherRanksAndStrategiesContinueWithTheSameLosses) {
  const Words rate = {"--lr-schedule", "constant"};
  train(rate + Words{"--steps", "8", "--strategy", "zero3", "--batch", "4", "--log", path("a.log"),
                     "--checkpoint", path("a"), "--checkpoint-every", "4", "--checkpoint-sync"});
  const auto whole = log("a.log");
  const std::vector<Words> shapes = {
      {"--ranks", "1", "--batch", "12", "--strategy", "ddp"},
      {"--ranks", "2", "--batch", "3", "--accumulate", "2", "--strategy", "zero1"},
      {"--ranks", "4", "--batch", "3", "--strategy", "hybrid", "--shard-group", "2"},
      {"--ranks", "6", "--batch", "2", "--strategy", "zero2", "--offload", "optimizer"}};
  for (const Words& shape : shapes) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const Outcome outcome = trained(
        rate + shape +
        Words{"--steps", "8", "--resume-from", path("a/" + step_name(4)), "--log", path("b.log")});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "") << "the global batch is the same";
    const auto lines = log("b.log");
    ASSERT_EQ(lines.size(), 4U);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i].at("step"), 5 + i);
      EXPECT_NEAR(lines[i].at("loss").get<double>(), whole[4 + i].at("loss").get<double>(),
                  small_bounds().later_loss * whole[0].at("loss").get<double>());
    }
  }
}

TEST_F(Resume, ARunWithLargerStepsContinuesAfterTheWindowsTaken) {
  train({"--steps", "5", "--checkpoint", path("a"), "--lr-schedule", "constant"});
  const Outcome outcome = trained({"--steps", "6", "--checkpoint", path("a"), "--lr-schedule",
                                   "constant", "--resume", "--batch", "3"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(
      outcome.err,
      "note: a step now takes 9 windows instead of 6; the next step takes windows 36 to 44 of "
      "epoch 0, the first whole batch after the 30 already used\n");
}

TEST_F(Resume, KeepsTheNewestAndEveryMth) {
  const Words all = {"--steps",
                     "12",
                     "--checkpoint",
                     path("a"),
                     "--checkpoint-every",
                     "2",
                     "--checkpoint-keep",
                     "2",
                     "--checkpoint-keep-every",
                     "6",
                     "--checkpoint-sync"};
  train(all);
  const std::set<std::string> names = {step_name(6), step_name(10), step_name(12),
                                       "model.safetensors"};
  EXPECT_EQ(names_in("a"), names);
  const Outcome done = trained(all + Words{"--resume"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("nothing is left to train: " + path("a/" + step_name(12)) +
                                  " was saved after step 12, and --steps is 12"));
  EXPECT_EQ(names_in("a"), names);
}

TEST_F(Resume, SaysWhyARunCannotResume) {
  const Words made = {"--steps",           "2",    "--seed", "7", "--lr", "0.002", "--no-shuffle",
                      "--accumulate-mode", "every"};
  train(made + Words{"--checkpoint", path("a")});
  fs::create_directory(path("empty"));
  const std::string step = path("a/" + step_name(2));
  const auto resumed = [&](const Words& more) {
    return Words{"--checkpoint", path("a"), "--resume"} + more;
  };
  refused({"--checkpoint", path("empty"), "--resume"},
          {"--resume: " + path("empty") + " holds no checkpoint; leave --resume out"});
  refused({"--checkpoint", path("none"), "--resume"}, {"holds no checkpoint"});
  EXPECT_FALSE(fs::exists(path("none")));
  refused({"--checkpoint", path("a")}, {"holds checkpoints of an earlier run", "--resume"});
  refused(resumed({"--steps", "4"}),
          {step + " was trained with --seed 7 --no-shuffle --accumulate-mode every --lr 0.002",
           "would use --seed 1 no --no-shuffle --accumulate-mode automatic --lr 0.0003"});
  refused(resumed({"--steps", "4", "--optimizer", "adam"}), {"another model or optimizer"});
  refused(resumed({"--init", path("a")}), {"--init cannot be combined with --resume"});
  refused(resumed({"--resume-from", step}), {"cannot be combined"});
  for (const Words& alone :
       {Words{"--resume"}, Words{"--checkpoint-every", "2"}, Words{"--shard-size", "1MiB"}}) {
    refused(alone, {alone.front() + " needs --checkpoint DIR"});
  }
  refused({"--resume-moments", "convert"}, {"--resume-moments has no effect"});
  refused({"--checkpoint", path("b"), "--checkpoint-sync"}, {"--checkpoint-sync has no effect"});
  EXPECT_FALSE(fs::exists(path("b")));
  for (const char* const run : {"c", "d"}) {
    train({"--steps", "4", "--checkpoint", path(run), "--checkpoint-every", "2",
           "--checkpoint-keep", "0"});
  }
  const auto continued = [&](const std::string& run) {
    return Words{
        "--steps", "4", "--checkpoint", path("c"), "--resume-from", path(run + "/" + step_name(2))};
  };
  refused(continued("c"),
          {path("c") + " holds a later checkpoint of the run that --resume-from continues",
           step_name(4) + ", and not only " + step_name(2), "--resume"});
  refused(continued("d"), {"of another run, the newest " + step_name(4)});
  refused({"--resume-from", path("text.txt")}, {"--resume-from: ", "holds no checkpoint"});
}

// A run that is killed between a save and the line of its step would leave a hole in the log.
TEST_F(Resume, AStepIsReportedBeforeACheckpointHoldsIt) {
  const Words words = training({"--steps", "3", "--eval-data", path("text.txt"), "--eval-every",
                                "2", "--checkpoint", path("run"), "--checkpoint-every", "1",
                                "--checkpoint-sync", "--checkpoint-keep", "0"});
  std::vector<const char*> raw;
  for (const std::string& word : words) { raw.push_back(word.c_str()); }
  const tools::Settings settings = tools::parse_command_line(raw).settings;
  const tools::Job job = tools::prepare(settings, {settings.sharded.strategy});
  std::vector<std::int64_t> reported;
  (void)tools::run_training(job, settings.sharded.strategy, [&](const tools::StepRecord& record) {
    const auto step = static_cast<int>(record.report.step);
    EXPECT_FALSE(fs::exists(path("run/" + step_name(step)))) << step;
    reported.push_back(step);
  });
  EXPECT_EQ(reported, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(newest_checkpoint(path("run")).step, 3);
}

// The clock of the command moves 20 seconds with each line of its log.
TEST_F(Resume, SavesAtTheGivenMinutes) {
  if (TESSERA_SANITIZED) { GTEST_SKIP() << "sanitizers refuse the preloaded clock"; }
  const auto saved = [&](const std::string& minutes) {
    const std::string name = "after-" + minutes;
    const Words timed = {"/usr/bin/env", "LD_PRELOAD=" + std::string{kLogClock},
                         "LOG_CLOCK=" + path(name + ".log")};
    const Outcome outcome =
        run(timed +
            command({"--steps", "8", "--checkpoint", path(name), "--checkpoint-minutes", minutes,
                     "--checkpoint-keep", "0", "--checkpoint-sync", "--log", path(name + ".log")}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::set<std::string> steps = names_in(name);
    steps.erase("model.safetensors");
    return steps;
  };
  EXPECT_EQ(saved("1"), (std::set{step_name(3), step_name(6), step_name(8)}));
  EXPECT_EQ(saved("2"), (std::set{step_name(6), step_name(8)}));
  EXPECT_EQ(saved("3"), (std::set{step_name(8)}));
}

// Both formats have fp32 masters; in fp16 a run continues with newly rounded weights.
TEST_F(Resume, PrecisionChangesIfItIsTyped) {
  const Words all = {"--checkpoint", path("a"), "--lr-schedule",
                     "constant",     "--log",   path("a.log")};
  train(all + Words{"--steps", "4"});
  fs::copy(path("a"), path("b"), fs::copy_options::recursive);
  train(all + Words{"--steps", "6", "--resume"});
  const auto whole = log("a.log");
  const Words half = {"--checkpoint", path("b"),     "--lr-schedule", "constant",
                      "--log",        path("b.log"), "--resume"};
  const Outcome outcome =
      trained(half + Words{"--steps", "6", "--precision", "fp16", "--reduce-dtype", "bf16"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(
      outcome.err,
      AllOf(HasSubstr("note: --precision fp16 from now on, --precision fp32 before"),
            HasSubstr("note: --reduce-dtype bf16 from now on, --reduce-dtype fp32 before")));
  const auto lines = log("b.log");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].at("loss"), whole[4].at("loss"));
  // The roundings to fp16, 10 a layer and 4, of 2 layers, of logits that are below 1 after 4 steps.
  const double bound = chain_error(24, DType::fp16);
  EXPECT_NEAR(lines[0].at("loss").get<double>(), whole[4].at("loss").get<double>(), bound);
  refused(half + Words{"--steps", "8"}, {"was trained with --precision fp16"});
  const Outcome back =
      trained(half + Words{"--steps", "8", "--precision", "fp32", "--reduce-dtype", "fp32"});
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_THAT(back.err, HasSubstr("note: --precision fp32 from now on"));
}

TEST_F(Resume, ReportsChangedOptions) {
  train({"--steps", "2", "--checkpoint", path("a")});
  const Outcome changed = trained(
      {"--steps", "4", "--lr", "0.002", "--seed", "5", "--checkpoint", path("a"), "--resume"});
  EXPECT_EQ(changed.status, 0) << changed.err;
  EXPECT_THAT(changed.err, AllOf(HasSubstr("note: --lr 0.002 from now on, --lr 0.0003 before"),
                                 HasSubstr("note: --seed 5 from"),
                                 HasSubstr("note: --steps 4 from now on, --steps 2 before")));
  const Words on = {"--steps",      "6",       "--lr",    "0.002", "--seed", "5",
                    "--checkpoint", path("a"), "--resume"};
  const std::string moments = "int8";
  refused(on + Words{"--moments", moments}, {"--resume-moments convert"});
  EXPECT_EQ(trained(on + Words{"--moments", moments, "--resume-moments", "convert"}).status, 0);

  write_file(path("text.txt"), text(19'000));
  const Words more = {"--steps",   "8",    "--lr",         "0.002",   "--seed",  "5",
                      "--moments", "int8", "--checkpoint", path("a"), "--resume"};
  refused(more, {path("text.txt") + " has changed", "20000 tokens", "19000 tokens"});
  write_file(path("other.txt"), text(19'000));
  const Outcome outcome = trained(more + Words{"--data", path("other.txt")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("training starts at their beginning"));
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndNeverUsed) {
  const Words all = {"--lr-schedule", "constant", "--checkpoint",
                     path("a"),       "--log",    path("a.log")};
  train(all + Words{"--steps", "6", "--checkpoint-every", "2", "--checkpoint-keep", "3",
                    "--checkpoint-sync"});
  const std::string newest = path("a/" + step_name(6));
  const std::string before = path("a/" + step_name(4));
  const std::string flipped = before + "/optimizer.safetensors";
  const std::string oldest = path("a/" + step_name(2) + "/model.safetensors");
  fs::resize_file(newest + "/optimizer.safetensors", 10'000);
  flip_a_bit(flipped);
  flip_a_bit(oldest);
  const auto names = names_in("a");
  const Words resumed = all + Words{"--steps", "8", "--resume"};
  refused(resumed, {oldest, "tensor '", "no earlier checkpoint that is whole"});
  EXPECT_EQ(names_in("a"), names);
  EXPECT_EQ(log("a.log").size(), 6U) << "the steps that are there";
  flip_a_bit(oldest);  // undoes the damage

  // Damaged checkpoints are renamed to free names; other files stay.
  fs::create_directories(newest + ".damaged");
  fs::create_directories(path("a/step-12"));
  fs::create_symlink(path("a/step-12"), path("a/" + step_name(9)));
  write_file(path("a/" + step_name(7)), "a user's");
  const Outcome outcome = trained(resumed);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("warning: --resume: " + newest),
                                 HasSubstr("warning: --resume: " + flipped + ": tensor '"),
                                 HasSubstr(newest + " is now " + newest + ".damaged-2"),
                                 HasSubstr(before + " is now " + before + ".damaged\n")));
  EXPECT_THAT(outcome.out, HasSubstr("steps 3 to 8"));
  EXPECT_EQ(log("a.log").size(), 8U) << "each step once";
  for (const std::string& name : {step_name(8), step_name(7), std::string{"step-12"}}) {
    EXPECT_TRUE(fs::exists(path("a/" + name))) << name;
  }
  EXPECT_TRUE(fs::is_symlink(path("a/" + step_name(9))));
}

TEST_F(Resume, ItsWeightsStartRunsAndGenerateText) {
  train({"--steps", "2", "--checkpoint", path("a"), "--shard-size", "10KiB"});
  train({"--steps", "2", "--checkpoint", path("b")});
  const std::string sharded = path("a/" + step_name(2));
  EXPECT_TRUE(fs::exists(sharded + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(path("a/model.safetensors")));
  std::set<std::string> all;
  for (const std::string& init :
       {sharded, sharded + "/model.safetensors.index.json", path("b"), path("b/" + step_name(2))}) {
    train({"--steps", "1", "--init", init, "--log", path("log")});
    all.insert(losses("log"));
  }
  EXPECT_EQ(all.size(), 1U);
  // A run's folder means its newest checkpoint, even if that has several files.
  train({"--steps", "4", "--checkpoint", path("b"), "--resume", "--shard-size", "10KiB"});
  EXPECT_FALSE(fs::exists(path("b/model.safetensors")));
  write_file(path("b/model.safetensors"),
             read_file(path("b/" + step_name(2) + "/model.safetensors")));
  all.clear();
  for (const std::string& init : {path("b"), path("b/" + step_name(4))}) {
    train({"--steps", "1", "--init", init, "--log", path("log")});
    all.insert(losses("log"));
  }
  EXPECT_EQ(all.size(), 1U);
}

TEST_F(Resume, NothingStartsFromDamagedWeights) {
  train({"--steps", "2", "--checkpoint", path("a")});
  const std::string step = path("a/" + step_name(2));
  const std::string weights = step + "/model.safetensors";
  flip_a_bit(weights);
  for (const std::string& init : {path("a"), step, weights}) {
    refused({"--init", init}, {weights, "tensor '", "bytes "});
    const Outcome outcome =
        tessera({"sample", "--init", init, "--layers", "2", "--hidden", "20", "--heads", "2",
                 "--seq", "16", "--prompt", "a", "--count", "1"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(weights), HasSubstr("tensor '"), HasSubstr("bytes ")));
  }
}

TEST_F(Resume, ReportsWhatCouldNotBeWritten) {
  // A save fails while the last save waits for it.
  fs::create_directories(path("a"));
  write_file(path("a/" + step_name(2)), "a user's");
  const Words all = {"--checkpoint", path("a"), "--checkpoint-every", "2"};
  const Outcome outcome = trained(all + Words{"--steps", "3"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the existing folder is not a checkpoint"));
  EXPECT_THAT(outcome.out, HasSubstr("weights in " + path("a/model.safetensors")));

  // The weights' name in the run's folder cannot be replaced.
  NamedPipe pipe{path("pipe")};
  pipe.fill();  // the first step waits for the reader
  RunningCommand run{command({"--checkpoint", path("b"), "--steps", "3", "--log", path("pipe")}),
                     path("run")};
  ASSERT_TRUE(wait_until([&] { return run.trains(); }));
  fs::create_symlink(path("a/model.safetensors"), path("b/model.safetensors"));
  pipe.read_to_end();
  const Outcome kept = run.wait();
  EXPECT_EQ(kept.status, 0) << kept.err;
  const std::string newest = path("b/" + step_name(3)) + "/model.safetensors";
  EXPECT_THAT(kept.out, HasSubstr("weights in " + newest));
  EXPECT_THAT(kept.err, HasSubstr("warning: --checkpoint: " + path("b/model.safetensors") +
                                  " does not hold the newest weights"));
}

/// A number of tokens without contents.
class Zeros final : public TokenSource {
 public:
  explicit Zeros(std::int64_t size) : size_{size} {}
  [[nodiscard]] std::int64_t size() const noexcept override { return size_; }
  void read(std::int64_t /*first*/, std::span<std::int32_t> out) const override {
    std::ranges::fill(out, 0);
  }

 private:
  std::int64_t size_;
};

// 100 windows: an epoch has 16 steps of 6 windows, 11 of 9, or one of 100.
TEST(DataPosition, ANewGlobalBatchBeginsBehindTheWindowsTaken) {
  const auto job = [](int ranks, std::int64_t batch) {
    tools::Settings settings;
    settings.ranks = ranks;
    settings.batch = batch;
    settings.sharded.accumulate = 1;
    settings.seq = 8;
    return tools::Job{
        settings, settings.named_model(), {}, {}, std::make_shared<const Zeros>(100 * 8 + 1)};
  };
  struct Case {
    std::int64_t steps;  // of 3 x 2 windows
    int ranks;
    std::int64_t batch;
    std::int64_t epoch;
    std::int64_t windows;  // where the next step begins
  };
  const std::vector<Case> cases = {{0, 3, 3, 0, 0},   {3, 3, 3, 0, 18},  {4, 3, 3, 0, 27},
                                   {15, 3, 3, 0, 90}, {16, 3, 3, 1, 0},  {16, 3, 2, 1, 0},
                                   {37, 3, 2, 2, 30}, {37, 1, 1, 2, 30}, {37, 1, 7, 2, 35},
                                   {1, 1, 100, 1, 0}, {16, 1, 100, 1, 0}};
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.steps << " steps, then " << c.ranks << " x " << c.batch);
    const tools::Job next = job(c.ranks, c.batch);
    const tools::DataPosition left = tools::position_after(job(3, 2), c.steps);
    const auto steps = tools::data_steps_before(next, left, "there");
    const tools::DataPosition position = tools::position_after(next, steps);
    EXPECT_EQ(position.epoch, c.epoch);
    EXPECT_EQ(position.windows, c.windows);
  }
  EXPECT_THROW((void)tools::data_steps_before(
                   job(1, 1), {.epoch = std::numeric_limits<std::int64_t>::max()}, "there"),
               FormatError);
}

}  // namespace
}  // namespace tessera::test::resume_test

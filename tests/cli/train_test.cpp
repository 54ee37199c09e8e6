// tessera train, run as a user runs it.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::train_test {
namespace {

class Train : public CommandTest {
 protected:
  /// Trains with a log, expects success, and returns the log's objects.
  std::vector<nlohmann::json> logged(std::vector<std::string> arguments,
                                     const std::string& name = "run.jsonl") {
    arguments.insert(arguments.end(), {"--log", path(name)});
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return log(name);
  }
  static std::vector<double> losses(const std::vector<nlohmann::json>& log) {
    std::vector<double> all;
    for (const auto& line : log) { all.push_back(line.at("loss").get<double>()); }
    return all;
  }
};

TEST_F(Train, LogsOneObjectAStepAndTheLossFalls) {
  const auto lines = logged(small("train", {"--steps", "30", "--lr", "0.01", "--warmup", "3"}));
  ASSERT_EQ(lines.size(), 30U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& line = lines[i];
    EXPECT_EQ(line.at("step"), i + 1);
    EXPECT_TRUE(line.at("loss").is_number_float());
    EXPECT_GT(line.at("grad_norm").get<double>(), 0);
    EXPECT_EQ(line.at("loss_scale"), 1);
    EXPECT_EQ(line.at("skipped"), false);
    EXPECT_GT(line.at("seconds").get<double>(), 0);
    EXPECT_GT(line.at("tokens_per_second").get<double>(), 0);
    EXPECT_EQ(line.at("peak_bytes").size(), 3U);
  }
  // bound: the loss of a guess, with logits whose variance adds half of it, below 0.4
  EXPECT_NEAR(losses(lines).front(), std::log(256.0), 0.2);
  EXPECT_LT(losses(lines).back(), 4.5);
}

TEST_F(Train, TheRateWarmsUpThenFallsToATenth) {
  const auto lines = logged(small("train", {"--steps", "10", "--lr", "0.008", "--warmup", "3"}));
  ASSERT_EQ(lines.size(), 10U);
  // A rate is rounded to fp32 after the few operations of a schedule.
  const double rounded = 4 * unit_roundoff(DType::fp32);
  EXPECT_NEAR(lines[0].at("lr").get<double>(), 0.002, rounded * 0.002);
  EXPECT_NEAR(lines[3].at("lr").get<double>(), 0.008, rounded * 0.008);
  EXPECT_LT(lines[9].at("lr").get<double>(), 0.002);
  EXPECT_GT(lines[9].at("lr").get<double>(), 0.0008 * (1 - rounded));
}

TEST_F(Train, AConstantRateStays) {
  const auto lines = logged(small("train", {"--steps", "4", "--lr-schedule", "constant"}));
  for (const auto& line : lines) { EXPECT_EQ(line.at("lr").get<double>(), 3e-4); }
}

TEST_F(Train, TheCosineEndsAtTheGivenRate) {
  const auto lines = logged(small("train", {"--steps", "2", "--lr", "0.003", "--min-lr", "0.001"}));
  // Half way down; a few operations in fp32.
  EXPECT_NEAR(lines[1].at("lr").get<double>(), 0.002, 4 * unit_roundoff(DType::fp32) * 0.003);
}

TEST_F(Train, RecomputeSavesMemoryAndChangesNoLossAndDropoutChangesThem) {
  const auto run = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = small("train", {"--steps", "3", "--strategy", "zero3"});
    all.insert(all.end(), more.begin(), more.end());
    return logged(all);
  };
  const auto kept = run({"--dropout", "0.2"});
  EXPECT_NE(losses(kept), losses(run({})));
  for (const char* which : {"block", "every:2", "gelu,layer-norm"}) {
    const auto recomputed = run({"--dropout", "0.2", "--recompute", which});
    EXPECT_EQ(losses(recomputed), losses(kept)) << which;
    EXPECT_EQ(recomputed[2].at("peak_bytes"), recomputed[2].at("planned_peak_bytes"));
    const bool saves = recomputed[2].at("peak_bytes")[0] < kept[2].at("peak_bytes")[0];
    EXPECT_EQ(saves, std::string{which} != "every:2");  // every:2 saves nothing with two layers
  }
}

TEST_F(Train, OffloadedActivationsLeaveTheDeviceAndChangeNoLoss) {
  const auto run = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = {
        "train",   "--data",     path("text.txt"), "--layers",    "8",       "--hidden", "20",
        "--heads", "2",          "--seq",          "16",          "--ranks", "2",        "--steps",
        "2",       "--strategy", "zero3",          "--recompute", "block"};
    all.insert(all.end(), more.begin(), more.end());
    return logged(all);
  };
  const auto kept = run({});
  const auto away = run({"--offload", "activations"});
  EXPECT_EQ(losses(away), losses(kept));
  EXPECT_EQ(away[1].at("peak_bytes"), away[1].at("planned_peak_bytes"));
  const std::size_t stream = 4 * 16 * 20 * sizeof(float);  // of 4 samples
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(kept[1].at("peak_bytes")[rank].get<std::size_t>() -
                  away[1].at("peak_bytes")[rank].get<std::size_t>(),
              5 * stream);  // three of eight layer inputs stay
  }
}

TEST_F(Train, AnOffloadedOptimizerLeavesTheDeviceAndChangesNoLoss) {
  const auto run = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = small("train", {"--steps", "3", "--strategy", "zero3"});
    all.insert(all.end(), more.begin(), more.end());
    return logged(all);
  };
  const auto kept = run({});
  std::vector<std::size_t> peaks;
  for (const auto& more : {std::vector<std::string>{"--offload", "optimizer"},
                           {"--offload", "optimizer", "--offload-keep", "0.5"},
                           {"--offload", "optimizer,activations"},
                           {"--offload", "state"}}) {
    const auto away = run(more);
    EXPECT_EQ(losses(away), losses(kept));
    EXPECT_EQ(away[2].at("peak_bytes"), away[2].at("planned_peak_bytes"));
    peaks.push_back(away[2].at("peak_bytes")[0].get<std::size_t>());
  }
  EXPECT_LT(peaks[1], kept[2].at("peak_bytes")[0].get<std::size_t>());
  EXPECT_LT(peaks[0], peaks[1]);
  EXPECT_LE(peaks[2], peaks[0]);  // every boundary has a slot: nothing to offload
}

TEST_F(Train, EveryNumberOfTheOptimizerHasAnEffect) {
  const auto with = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = small("train", {"--steps", "4", "--lr", "0.01"});
    all.insert(all.end(), more.begin(), more.end());
    return losses(logged(all));
  };
  const std::vector<double> usual = with({});
  EXPECT_EQ(with({"--beta1", "0.9", "--beta2", "0.95", "--eps", "1e-8", "--weight-decay", "0.1",
                  "--clip", "1"}),
            usual);
  for (const char* option : {"--beta1", "--beta2", "--eps", "--weight-decay", "--clip"}) {
    EXPECT_NE(with({option, "0.01"}), usual) << option;
  }
}

TEST_F(Train, GatheringAheadAndReducingLateShowInThePeak) {
  const auto peak = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--steps", "3", "--accumulate", "2", "--strategy", "zero3"};
    all.insert(all.end(), more.begin(), more.end());
    return logged(small("train", all)).back().at("peak_bytes")[0].get<std::size_t>();
  };
  EXPECT_LT(peak({"--prefetch", "0"}), peak({"--prefetch", "1"}));
  EXPECT_NE(peak({"--accumulate-mode", "every"}), peak({"--accumulate-mode", "deferred"}));
}

TEST_F(Train, EveryStrategyLogsTheSameLosses) {
  const auto base = losses(logged(small("train", {"--steps", "6", "--strategy", "ddp"})));
  ASSERT_EQ(base.size(), 6U);
  for (const std::string strategy : {"dp", "zero1", "zero2", "zero3", "fsdp"}) {
    EXPECT_EQ(losses(logged(small("train", {"--steps", "6", "--strategy", strategy}))), base)
        << strategy;
  }
}

TEST_F(Train, ALossScaleThatIsAPowerOfTwoIsLoggedAndChangesNoLoss) {
  const auto with = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--steps", "5", "--lr", "0.01"};
    all.insert(all.end(), more.begin(), more.end());
    return logged(small("train", all));
  };
  const auto usual = with({});
  for (const auto& [given, scale] : std::vector<std::pair<std::string, double>>{
           {"off", 1}, {"dynamic", 65'536}, {"4096", 4096}, {"0.25", 0.25}}) {
    const auto lines = with({"--loss-scale", given});
    EXPECT_EQ(losses(lines), losses(usual)) << given;
    for (const auto& line : lines) { EXPECT_EQ(line.at("loss_scale"), scale) << given; }
  }
  EXPECT_EQ(with({"--precision", "fp16"})[0].at("loss_scale"), 65'536) << "dynamic by itself";
  EXPECT_EQ(with({"--precision", "bf16"})[0].at("loss_scale"), 1);
}

// With this learning rate every model diverges.
TEST_F(Train, SkippedStepsAreReportedAndTheLastOfTooManyNamesTheUnit) {
  const Outcome outcome =
      tessera(small("train", {"--steps", "10", "--lr", "1e30", "--max-skips", "3", "--loss-scale",
                              "dynamic", "--log", path("run.jsonl")}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("step 2 skipped: the gradient is not finite (loss scale 65536, next "
                             "32768)\nstep 3 skipped: the gradient is not finite (loss scale "
                             "32768, next 16384)\nerror: rank 0: step 4: the gradient"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("of unit '"), std::string::npos) << outcome.err;
  const auto lines = log("run.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].at("skipped"), false);
  EXPECT_EQ(lines[2].at("skipped"), true);
  EXPECT_EQ(lines[2].at("loss_scale"), 32'768);
}

TEST_F(Train, SixteenBitsChangeLossesAndUseThePlannedMemory) {
  const auto with = [this](const std::string& precision) {
    return logged(small("train", {"--steps", "4", "--lr", "0.01", "--strategy", "zero3",
                                  "--precision", precision}));
  };
  const std::vector<double> wide = losses(with("fp32"));
  for (const char* precision : {"bf16", "fp16"}) {
    const auto lines = with(precision);
    const std::vector<double> narrow = losses(lines);
    ASSERT_EQ(narrow.size(), 4U) << precision;
    for (const double loss : narrow) { EXPECT_TRUE(std::isfinite(loss)) << precision; }
    EXPECT_NE(narrow, wide) << precision;
    EXPECT_EQ(lines.back().at("peak_bytes"), lines.back().at("planned_peak_bytes")) << precision;
  }
}

TEST_F(Train, ReportsItsPrecisionAndThatWrittenWeightsAreRounded) {
  const auto out = [this](const std::string& precision) {
    return tessera(small("train", {"--steps", "0", "--precision", precision, "--checkpoint",
                                   path(precision)}))
        .out;
  };
  const std::string narrow = out("bf16");
  EXPECT_NE(narrow.find(", bf16 (gradients fp32, reduced in fp32)"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("model.safetensors, rounded to bf16"), std::string::npos) << narrow;
  const std::string wide = out("fp32");
  EXPECT_EQ(wide.find(", fp32"), std::string::npos) << wide;
  EXPECT_NE(wide.find("model.safetensors\n"), std::string::npos) << wide;
}

TEST_F(Train, ZeroSkipsNeverEndARun) {
  const Outcome outcome =
      tessera(small("train", {"--steps", "30", "--lr", "1e30", "--max-skips", "0"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step 30 skipped"), std::string::npos) << outcome.err;
}

TEST_F(Train, ADivergedRunSaysSoAtItsEnd) {
  const Outcome outcome = tessera(small("train", {"--steps", "4", "--lr", "1e30", "--log",
                                                  path("run.jsonl"), "--report", path("r.html")}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string why = "the loss of step 4 is";
  EXPECT_NE(outcome.err.find("warning: the run has diverged: " + why), std::string::npos)
      << outcome.err;
  EXPECT_EQ(log("run.jsonl").back().at("diverged").get<std::string>().rfind(why, 0), 0U);
  EXPECT_FALSE(log("run.jsonl")[2].contains("diverged")) << "only the last line says it";
  EXPECT_NE(read_file(path("r.html")).find("\"diverged\":\"" + why), std::string::npos);
}

TEST_F(Train, AFullDiskUnderTheCheckpointIsStatusOneToo) {
  const Outcome outcome = shell("trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"",
                                small("train", {"--steps", "1", "--checkpoint", path("weights")}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("model.safetensors"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder() / "weights" / "model.safetensors"));
}

TEST_F(Train, PlainLinesHaveNoControlCharacters) {
  const Outcome outcome = tessera(small("train", {"--steps", "20"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char c : outcome.out) { ASSERT_TRUE(c == '\n' || c >= ' ') << static_cast<int>(c); }
  EXPECT_NE(outcome.out.find("step 20/20"), std::string::npos) << outcome.out;
}

TEST_F(Train, WithoutShuffleSamplesFollowTheData) {
  // Two samples per step, 20,000 bytes: the first step reads only the beginning. Another file with
  // the same beginning gives the same first loss.
  write_file(folder() / "other.txt", text(20'000).substr(0, 97) + std::string(5'000, 'z'));
  const std::vector<std::string> sizes = {
      "--steps", "1",     "--no-shuffle", "--layers", "1", "--hidden", "16", "--heads",
      "2",       "--seq", "16",           "--ranks",  "3", "--batch",  "2"};
  auto first = sizes, second = sizes;
  first.insert(first.begin(), {"train", "--data", path("text.txt")});
  second.insert(second.begin(), {"train", "--data", path("other.txt")});
  EXPECT_EQ(losses(logged(first)), losses(logged(second)));

  std::vector<std::string> shuffled = first;
  shuffled.erase(std::find(shuffled.begin(), shuffled.end(), "--no-shuffle"));
  EXPECT_NE(losses(logged(shuffled)), losses(logged(first)));
}

TEST_F(Train, ContinuesWithTheNextEpoch) {
  // 97 bytes: six windows of 16, one step an epoch.
  write_file(folder() / "tiny.txt", text(97));
  const auto lines =
      logged({"train", "--data", path("tiny.txt"), "--layers", "1", "--hidden", "16", "--heads",
              "2", "--seq", "16", "--ranks", "3", "--batch", "2", "--steps", "40", "--lr", "0.02"});
  ASSERT_EQ(lines.size(), 40U);
  EXPECT_LT(losses(lines).back(), losses(lines).front() - 1);
}

TEST_F(Train, AFolderIsItsFilesInOrder) {
  const std::string all = text(20'000);
  std::filesystem::create_directory(folder() / "texts");
  write_file(folder() / "texts" / "a", all.substr(0, 7'000));
  write_file(folder() / "texts" / "b", all.substr(7'000));
  auto from_folder = small("train", {"--steps", "3"});
  from_folder[2] = path("texts");
  EXPECT_EQ(losses(logged(from_folder)), losses(logged(small("train", {"--steps", "3"}))));
}

TEST_F(Train, TokensOfBytesAreTheBytes) {
  std::string tokens;
  for (const char c : text(20'000)) { tokens += {c, '\0'}; }
  write_file(folder() / "tokens.bin", tokens);
  auto from_tokens = small("train", {"--steps", "3"});
  from_tokens[1] = "--tokens";
  from_tokens[2] = path("tokens.bin");
  const auto from_bytes = losses(logged(small("train", {"--steps", "3"})));
  EXPECT_EQ(losses(logged(from_tokens)), from_bytes);
  std::string header = "{'descr': '<i2', 'fortran_order': False, 'shape': (20000,), }";
  header.resize(117, ' ');
  write_file(folder() / "tokens.npy",
             std::string{"\x93NUMPY\x01\0\x76\0", 10} + header + "\n" + tokens);
  from_tokens[2] = path("tokens.npy");
  EXPECT_EQ(losses(logged(from_tokens)), from_bytes);
}

TEST_F(Train, AnotherSeedGivesAnotherRun) {
  const auto one = losses(logged(small("train", {"--steps", "2", "--seed", "1"})));
  const auto two = losses(logged(small("train", {"--steps", "2", "--seed", "2"})));
  EXPECT_NE(one, two);
}

TEST_F(Train, AccumulatingApproximatesALargerBatch) {
  const auto wide = losses(logged(small("train", {"--steps", "5", "--no-shuffle"})));
  auto arguments = small("train", {"--steps", "5", "--no-shuffle", "--accumulate", "2"});
  *(std::find(arguments.begin(), arguments.end(), "--batch") + 1) = "1";
  const auto deep = losses(logged(arguments));
  ASSERT_EQ(wide.size(), deep.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_NEAR(wide[i], deep[i], small_bounds().later_loss * wide[0]) << i;
  }
}

TEST_F(Train, InitialWeightsRoundTripToTheBit) {
  const Outcome saved = tessera(small("train", {"--steps", "0", "--checkpoint", path("initial")}));
  ASSERT_EQ(saved.status, 0) << saved.err;
  ASSERT_TRUE(std::filesystem::exists(folder() / "initial" / "model.safetensors"));

  const auto fresh = losses(logged(small("train", {"--steps", "3"})));
  const std::string file = path("initial/model.safetensors");
  // With another seed the weights can only come from the file; without shuffling the order is the
  // same.
  const auto loaded = losses(
      logged(small("train", {"--steps", "3", "--init", file, "--no-shuffle", "--seed", "5"})));
  const auto plain = losses(logged(small("train", {"--steps", "3", "--no-shuffle"})));
  EXPECT_EQ(loaded, plain);
  EXPECT_NE(fresh, plain);
}

TEST_F(Train, ZeroStepsNeedNoData) {
  const Outcome outcome = tessera({"train", "--steps", "0", "--layers", "1", "--hidden", "8",
                                   "--heads", "1", "--checkpoint", path("initial")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(folder() / "initial" / "model.safetensors"));
}

TEST_F(Train, FinalWeightsAreTheSameFileUnderEveryStrategy) {
  std::vector<std::string> files;
  for (const std::string strategy : {"dp", "ddp", "zero1", "zero2", "zero3"}) {
    const Outcome outcome = tessera(
        small("train", {"--steps", "4", "--strategy", strategy, "--checkpoint", path(strategy)}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    files.push_back(read_file(folder() / strategy / "model.safetensors"));
    EXPECT_GT(files.back().size(), 1'000U);
    EXPECT_TRUE(files.back() == files.front()) << strategy;
  }
}

TEST_F(Train, MoreThreadsGiveTheSameLossesAndWeightsToTheBit) {
  std::vector<std::vector<double>> all;
  std::vector<std::string> files;
  for (const std::string threads : {"1", "2"}) {
    all.push_back(losses(logged({"train", "--data", path("text.txt"), "--hidden", "96", "--heads",
                                 "3", "--layers", "2", "--seq", "64", "--ranks", "2", "--steps",
                                 "4", "--threads", threads, "--checkpoint", path(threads)})));
    files.push_back(read_file(folder() / threads / "model.safetensors"));
  }
  ASSERT_EQ(all[0].size(), 4U);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_GT(files[0].size(), 1'000U);
  EXPECT_TRUE(files[0] == files[1]);
}

TEST_F(Train, WeightsHaveGpt2NamesAndNoTiedHead) {
  const Outcome outcome = tessera(small("train", {"--steps", "0", "--checkpoint", path("w")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string bytes = read_file(folder() / "w" / "model.safetensors");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) { length = length << 8 | static_cast<unsigned char>(bytes[i]); }
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(header.at("wte.weight").at("shape"), nlohmann::json({256, 20}));
  EXPECT_EQ(header.at("h.1.attn.c_attn.weight").at("shape"), nlohmann::json({20, 60}));
  EXPECT_EQ(header.at("h.0.mlp.c_fc.weight").at("shape"), nlohmann::json({20, 80}));
  EXPECT_TRUE(header.contains("ln_f.bias"));
  EXPECT_FALSE(header.contains("lm_head.weight"));
}

TEST_F(Train, WeightsOfAnotherModelAreRefused) {
  ASSERT_EQ(tessera(small("train", {"--steps", "0", "--checkpoint", path("w")})).status, 0);
  auto deeper = small("train", {"--steps", "1", "--init", path("w/model.safetensors")});
  *(std::find(deeper.begin(), deeper.end(), "--layers") + 1) = "1";
  const Outcome layers = tessera(deeper);
  EXPECT_EQ(layers.status, 2);
  EXPECT_NE(layers.err.find("2 layers"), std::string::npos) << layers.err;

  auto wider = small("train", {"--steps", "1", "--init", path("w/model.safetensors")});
  *(std::find(wider.begin(), wider.end(), "--hidden") + 1) = "24";
  const Outcome hidden = tessera(wider);
  EXPECT_EQ(hidden.status, 2);
  EXPECT_NE(hidden.err.find("model.safetensors"), std::string::npos) << hidden.err;
}

TEST_F(Train, LogsIntoAPipeWithAReader) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(tessera(small("train", {"--steps", "1", "--log", path("pipe")})).status, 0);
  char first = 0;
  EXPECT_EQ(read(reader, &first, 1), 1);
  EXPECT_EQ(first, '{');
  close(reader);
}

TEST_F(Train, PeakMemoryIsThatOfTheFirstSteps) {
  const auto lines = logged(small("train", {"--steps", "8", "--strategy", "zero3"}));
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(lines[1].at("peak_bytes"), lines[7].at("peak_bytes"));
}

}  // namespace
}  // namespace tessera::test::train_test

// tessera sample, and the held-out loss of tessera train.
#include <gmock/gmock.h>

#include "cli/command.hpp"

namespace tessera::test::sample_test {
namespace {

class Sample : public CommandTest {
 protected:
  // Trains weights that have learnt a little of the text.
  void train_weights() {
    const Outcome outcome =
        tessera(small("train", {"--steps", "60", "--lr", "0.01", "--checkpoint", path("weights")}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  [[nodiscard]] std::vector<std::string> sampled(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"sample",   "--init",  path("weights/model.safetensors"),
                                    "--layers", "2",       "--hidden",
                                    "20",       "--heads", "2",
                                    "--seq",    "16"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] nlohmann::json json_of(const std::vector<std::string>& more) const {
    std::vector<std::string> all = sampled(more);
    all.insert(all.end(), {"--json", path("s.json")});
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(read_file(path("s.json")));
  }
  void refused(const std::vector<std::string>& more, const std::vector<std::string>& words) const {
    const Outcome outcome = tessera(sampled(more));
    EXPECT_EQ(outcome.status, 2);
    for (const std::string& word : words) {
      EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
    }
  }
};

TEST_F(Sample, WritesLearnedText) {
  train_weights();
  const Outcome outcome =
      tessera(sampled({"--prompt", "the ", "--count", "40", "--temperature", "0"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.find("the "), 0U) << outcome.out;
  EXPECT_NE(outcome.out.find("tokens/s; peak memory"), std::string::npos) << outcome.out;
  const std::string drawn = outcome.out.substr(4, 40);
  for (const char c : drawn) {
    EXPECT_NE(std::string{"the tile of a mosaic is set\n"}.find(c), std::string::npos)
        << outcome.out;
  }
}

TEST_F(Sample, DoesNotDependOnRanksOrStrategyAndHoldsWhatWasPlanned) {
  train_weights();
  const std::vector<std::string> usual = {"--count", "12", "--samples", "3", "--top-k", "20"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), usual.begin(), usual.end());
    return json_of(more);
  };
  const auto alone = with({});
  ASSERT_EQ(alone.at("samples").size(), 3U);
  EXPECT_EQ(alone.at("samples")[0].at("tokens").size(), 12U);
  EXPECT_NE(alone.at("samples")[0], alone.at("samples")[1]);
  for (const char* strategy : {"dp", "zero1", "zero3"}) {
    const auto several = with({"--ranks", "2", "--strategy", strategy});
    EXPECT_EQ(several.at("samples"), alone.at("samples")) << strategy;
    EXPECT_EQ(several.at("peak_bytes"), several.at("planned_peak_bytes")) << strategy;
    EXPECT_EQ(several.at("peak_bytes").size(), 2U);
  }
  EXPECT_NE(with({"--seed", "2"}).at("samples"), alone.at("samples"));
}

TEST_F(Sample, TakesAPromptFromAFileOrAsNumbers) {
  train_weights();
  write_file(path("prompt.txt"), "a tile");
  const std::vector<std::string> usual = {"--count", "5", "--temperature", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), usual.begin(), usual.end());
    return json_of(more);
  };
  const auto text = with({"--prompt", "a tile"});
  EXPECT_EQ(with({"--prompt-file", path("prompt.txt")}).at("samples"), text.at("samples"));
  const auto numbers = with({"--prompt-tokens", "97,32,116,105,108,101"});
  EXPECT_EQ(numbers.at("samples")[0].at("tokens"), text.at("samples")[0].at("tokens"));
  EXPECT_FALSE(numbers.at("samples")[0].contains("text"));
  // scripts/prepare_tokens.py --decode reads these lines.
  const auto printed = tessera(sampled(
      {"--prompt-tokens", "97,32", "--count", "2", "--samples", "2", "--temperature", "0"}));
  EXPECT_THAT(printed.out, testing::MatchesRegex("--- sample 1 of 2\n97,32,[0-9]+,[0-9]+\n"
                                                 "--- sample 2 of 2\n97,32,[0-9]+,[0-9]+\n"
                                                 "---\n.*\n"));
}

TEST_F(Sample, RefusesImpossibleOptionsWithAdvice) {
  train_weights();
  Outcome outcome = tessera({"sample"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("--init"), std::string::npos);
  refused({"--prompt", "a", "--prompt-tokens", "1"}, {"cannot be combined"});
  refused({"--prompt-tokens", "256"}, {"token 256", "vocabulary"});
  refused({"--prompt-file", path("none")}, {"--prompt-file", "cannot read"});
  refused({"--vocab", "300"}, {"--prompt-tokens"});
  refused({"--top-p", "0"}, {"--top-p", "above 0"});
  refused({"--top-p", "1.5"}, {"--top-p is 1.5", "up to 1"});
  refused({"--temperature", "-1"}, {"--temperature is -1"});
  refused({"--count", "0"}, {"--count"});
  refused({"--batch", "2"}, {"--batch", "tessera train"});
  outcome = tessera(sampled({"--budget", "10KiB"}));
  EXPECT_EQ(outcome.status, 3) << outcome.err;
  outcome = tessera({"sample", "--init", path("weights/model.safetensors")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("2 layers"), std::string::npos) << outcome.err;
}

class HeldOut : public CommandTest {
 protected:
  [[nodiscard]] std::vector<nlohmann::json> logged(std::vector<std::string> more) const {
    more.insert(more.end(), {"--steps", "5", "--lr", "0.01", "--log", path("run.jsonl")});
    const Outcome outcome = tessera(small("train", more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return log("run.jsonl");
  }
};

TEST_F(HeldOut, LossIsLoggedWhenMeasuredAndChangesNothingElse) {
  write_file(path("held.txt"), text(3'000));
  const auto plain = logged({"--strategy", "zero3", "--dropout", "0.1"});
  const auto measured = logged({"--strategy", "zero3", "--dropout", "0.1", "--eval-data",
                                path("held.txt"), "--eval-every", "2", "--eval-batches", "3"});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(measured[i].at("loss"), plain[i].at("loss"));
    EXPECT_EQ(measured[i].contains("eval_loss"), i == 1 || i == 3 || i == 4) << i;
    EXPECT_EQ(measured[i].at("peak_bytes"), measured[i].at("planned_peak_bytes"));
    EXPECT_FALSE(plain[i].contains("eval_loss"));
  }
  EXPECT_LT(measured[4].at("eval_loss"), measured[1].at("eval_loss"));
}

TEST_F(HeldOut, DataThatCannotBeIsRefused) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& word) {
    const Outcome outcome = tessera(small("train", more));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
  };
  refused({"--eval-every", "2"}, "without --eval-data");
  refused({"--eval-data", path("none")}, "none");
  write_file(path("short.txt"), "short");
  refused({"--eval-data", path("short.txt")}, "too few");
  refused({"--eval-data", path("short.txt"), "--steps", "0"}, "--steps 0");
}

}  // namespace
}  // namespace tessera::test::sample_test

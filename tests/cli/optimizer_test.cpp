// --optimizer, --moments, --rounding, --momentum and --master-weights, run as a user runs them.
#include <cstdint>
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::optimizer_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class OptimizerFlags : public CommandTest {
 protected:
  [[nodiscard]] static Words joined(Words all, const Words& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Losses of four steps under zero2.
  [[nodiscard]] std::vector<double> losses(const Words& more) const {
    const Outcome outcome =
        tessera(joined(small("train", {"--steps", "4", "--lr", "0.01", "--strategy", "zero2",
                                       "--log", path("run.jsonl")}),
                       more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<double> all;
    for (const Json& line : log("run.jsonl")) { all.push_back(line.at("loss")); }
    EXPECT_EQ(all.size(), 4U);
    return all;
  }
  /// Planned bytes of optimizer state per parameter under zero1.
  [[nodiscard]] double planned(const Words& more) const {
    const Outcome outcome = tessera(joined({"plan", "--params", "64e6", "--ranks", "4",
                                            "--strategy", "zero1", "--json", path("plan.json")},
                                           more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(read_file(path("plan.json")));
    const Json& states = json.at("strategies")[0].at("ranks")[0].at("model_state_bytes");
    return states.at("optimizer").get<double>() / 16e6;
  }
  void refused(const Words& arguments, const Words& parts) const {
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(outcome.out, "");
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " is not in " << outcome.err;
    }
  }
};

TEST_F(OptimizerFlags, EachTrainsDifferently) {
  const std::vector<Words> all = {
      {"--optimizer", "adamw"},
      {"--optimizer", "adam"},
      {"--optimizer", "sgd"},
      {"--optimizer", "lion"},
      {"--optimizer", "sgd", "--momentum", "0.5"},
      {"--optimizer", "adam", "--beta2", "0.9"},
      {"--optimizer", "lion", "--weight-decay", "0.5"},
      {"--moments", "bf16"},
      {"--moments", "bf16", "--rounding", "stochastic"},
      {"--moments", "int8"},
      {"--moments", "int8", "--seed", "2"},
  };
  std::vector<std::vector<double>> seen;
  for (const Words& words : all) {
    seen.push_back(losses(words));
    EXPECT_LT(seen.back().back(), seen.back().front()) << testing::PrintToString(words);
    for (std::size_t other = 0; other + 1 < seen.size(); ++other) {
      EXPECT_NE(seen[other], seen.back()) << testing::PrintToString(words);
    }
  }
  EXPECT_EQ(losses({}), seen[0]) << "adamw is the default";
}

TEST_F(OptimizerFlags, StrategiesGiveTheSameBitsAndThePlannedBytes) {
  const Outcome outcome =
      tessera(small("compare", {"--steps", "3", "--optimizer", "lion", "--moments", "bf16",
                                "--rounding", "stochastic", "--strategies", "ddp,zero1,zero2,zero3",
                                "--json", path("compare.json")}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("bit-identical"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("lion, moments bf16, rounded stochastically"), std::string::npos);
  const Json json = Json::parse(read_file(path("compare.json")));
  for (const Json& strategy : json.at("strategies")) {
    for (const Json& rank : strategy.at("ranks")) {
      EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
    }
  }
}

TEST_F(OptimizerFlags, MomentsOfEightBitsGiveTheSameBitsAndThePlannedBytesToo) {
  const Outcome outcome = tessera(
      small("compare", {"--steps", "3", "--moments", "int8", "--precision", "bf16", "--strategies",
                        "ddp,zero1,zero2,zero3", "--clip", "0", "--json", path("compare.json")}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("bit-identical"), std::string::npos) << outcome.out;
  const Json json = Json::parse(read_file(path("compare.json")));
  for (const Json& strategy : json.at("strategies")) {
    for (const Json& rank : strategy.at("ranks")) {
      EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
    }
  }
}

TEST_F(OptimizerFlags, ThePlanCountsTheirState) {
  EXPECT_NEAR(planned({"--moments", "int8"}), 2.03125, 0.005);
  EXPECT_NEAR(planned({"--moments", "int8", "--optimizer", "lion"}), 1.015625, 0.005);
  EXPECT_NEAR(planned({"--moments", "int8", "--precision", "bf16"}), 6.03125, 0.005);
  EXPECT_NEAR(planned({}), 8, 0.005);
  EXPECT_NEAR(planned({"--moments", "bf16"}), 4, 0.005);
  EXPECT_NEAR(planned({"--optimizer", "adam"}), 8, 0.005);
  EXPECT_NEAR(planned({"--optimizer", "lion"}), 4, 0.005);
  EXPECT_NEAR(planned({"--optimizer", "lion", "--moments", "bf16"}), 2, 0.005);
  EXPECT_NEAR(planned({"--optimizer", "sgd"}), 4, 0.005);
  EXPECT_NEAR(planned({"--optimizer", "sgd", "--momentum", "0"}), 0, 0.005);
  EXPECT_NEAR(planned({"--precision", "bf16"}), 12, 0.005);
  EXPECT_NEAR(planned({"--precision", "bf16", "--optimizer", "lion", "--moments", "bf16",
                       "--rounding", "stochastic"}),
              6, 0.005);
  EXPECT_NEAR(planned({"--precision", "bf16", "--master-weights", "remainder"}), 10, 0.005);
}

TEST_F(OptimizerFlags, RemaindersTrainAsFp32MastersAndTakeThePlannedBytes) {
  const auto losses_and_bytes = [&](const Words& more) {
    const Outcome outcome =
        tessera(joined(small("compare", {"--steps", "3", "--precision", "bf16", "--strategies",
                                         "ddp,zero3", "--json", path("compare.json")}),
                       more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(read_file(path("compare.json")));
    Json losses = Json::array();
    std::vector<std::size_t> bytes;
    for (const Json& strategy : json.at("strategies")) {
      losses.push_back(strategy.at("losses"));
      for (const Json& rank : strategy.at("ranks")) {
        EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
        bytes.push_back(rank.at("model_state_bytes").at("optimizer").get<std::size_t>());
      }
    }
    return std::pair{losses, bytes};
  };
  const auto whole = losses_and_bytes({});
  const auto halves = losses_and_bytes({"--master-weights", "remainder"});
  EXPECT_EQ(halves.first, whole.first);
  ASSERT_EQ(halves.second.size(), whole.second.size());
  for (std::size_t i = 0; i < whole.second.size(); ++i) {
    EXPECT_EQ(12 * halves.second[i], 10 * whole.second[i]);
  }
}

TEST_F(OptimizerFlags, ALargerModelFitsWithLessState) {
  const auto largest = [&](const Words& more) {
    const Outcome outcome = tessera(
        joined({"scale", "--ranks", "2", "--budget", "64MiB", "--strategies", "ddp", "--batch", "1",
                "--seq", "8", "--vocab", "256", "--json", path("scale.json")},
               more));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(read_file(path("scale.json")));
    return json.at("strategies")[0].at("largest")[0].at("parameters").get<std::int64_t>();
  };
  EXPECT_LT(largest({}), largest({"--optimizer", "sgd", "--momentum", "0"}));
}

TEST_F(OptimizerFlags, OptionsWithoutEffectAreRefused) {
  refused(small("train", {"--optimizer", "adagrad"}),
          {"--optimizer: 'adagrad' is unknown; use adamw, adam, sgd or lion"});
  refused(small("train", {"--moments", "fp16"}), {"--moments: 'fp16'", "fp32, bf16 or int8"});
  refused(small("train", {"--rounding", "up"}), {"--rounding", "nearest, stochastic"});
  refused(small("train", {"--momentum", "0.5"}), {"--momentum has no effect", "adamw"});
  refused(small("train", {"--optimizer", "sgd", "--momentum", "1"}),
          {"--momentum must be a finite number in [0, 1)"});
  refused(small("train", {"--optimizer", "sgd", "--beta1", "0.5"}), {"--beta1 has no effect"});
  refused(small("train", {"--optimizer", "lion", "--eps", "0.1"}), {"--eps has no effect"});
  refused(small("train", {"--rounding", "stochastic"}), {"--rounding stochastic has no effect"});
  refused({"plan", "--optimizer", "sgd", "--momentum", "0", "--moments", "bf16"},
          {"--moments bf16 has no effect"});
  refused({"plan", "--moments", "int8", "--rounding", "stochastic"},
          {"--rounding stochastic has no effect"});
  refused({"scale", "--momentum", "0.5"}, {"--momentum has no effect"});
  const Words remainder{"--master-weights", "remainder"};
  refused(small("train", {"--master-weights", "bf16"}), {"--master-weights", "fp32 or remainder"});
  refused(small("train", remainder), {"--master-weights remainder has no effect", "bf16"});
  refused(joined({"plan", "--precision", "fp16"}, remainder), {"fp16", "use bf16"});
  refused(joined({"plan", "--precision", "bf16", "--offload", "optimizer"}, remainder),
          {"--master-weights remainder", "--offload optimizer"});
  refused(joined({"scale", "--precision", "bf16", "--norm-dtype", "fp16"}, remainder), {"fp16"});
  refused(joined({"plan", "--precision", "bf16", "--rounding", "stochastic"}, remainder),
          {"--rounding stochastic is incompatible with --master-weights remainder"});
}

}  // namespace
}  // namespace tessera::test::optimizer_test

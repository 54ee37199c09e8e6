// tessera compare and doctor, run as a user runs them.
#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "cli/command.hpp"

namespace tessera::test::compare_test {
namespace {

using Compare = CommandTest;

nlohmann::json compared(const Outcome& outcome, const std::string& file) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return nlohmann::json::parse(read_file(file));
}

void expect_rank(const nlohmann::json& rank, std::size_t number) {
  EXPECT_EQ(rank.at("rank"), number);
  EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
  std::size_t sum = 0;
  for (const auto& [category, bytes] : rank.at("at_peak").items()) {
    sum += bytes.get<std::size_t>();
  }
  EXPECT_EQ(rank.at("peak_bytes"), sum);
  for (const char* category :
       {"parameters", "gradients", "optimizer", "gather", "reduce", "activations", "workspace"}) {
    EXPECT_TRUE(rank.at("at_peak").contains(category)) << category;
  }
  for (const char* part : {"parameters", "gradients", "optimizer"}) {
    EXPECT_TRUE(rank.at("model_state_bytes").at(part).is_number_unsigned()) << part;
  }
}

TEST_F(Compare, JsonHasTheContractsFieldsAndEqualLosses) {
  const Outcome outcome = tessera(small("compare", {"--steps", "5", "--json", path("out.json")}));
  const nlohmann::json json = compared(outcome, path("out.json"));
  // (256 + 16) 20 + 2 (12 20^2 + 13 20) + 2 20
  EXPECT_EQ(json.at("model").at("parameters"), 15'600);
  EXPECT_EQ(json.at("model").at("name"), "custom");
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("comm"), "local");
  std::vector<std::string> names;
  for (const auto& strategy : json.at("strategies")) {
    names.push_back(strategy.at("name"));
    EXPECT_GT(strategy.at("seconds_per_step").get<double>(), 0);
    EXPECT_GT(strategy.at("tokens_per_second").get<double>(), 0);
    EXPECT_EQ(strategy.at("losses").size(), 5U);
    EXPECT_EQ(strategy.at("losses"), json.at("strategies")[0].at("losses"));
    ASSERT_EQ(strategy.at("ranks").size(), 3U);
    for (std::size_t r = 0; r < 3; ++r) { expect_rank(strategy.at("ranks")[r], r); }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"dp", "ddp", "zero1", "zero2", "zero3"}));
}

TEST_F(Compare, SixteenBitsAreBitIdenticalUnderEveryStrategyAndUseThePlannedMemory) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const Outcome outcome =
        tessera(small("compare", {"--steps", "3", "--precision", precision, "--reduce-dtype",
                                  "bf16", "--dropout", "0.1", "--json", path("o")}));
    const nlohmann::json json = compared(outcome, path("o"));
    EXPECT_EQ(json.at("precision").get<std::string>(), precision);
    EXPECT_EQ(json.at("gradient_dtype"), "fp32");
    EXPECT_EQ(json.at("reduce_dtype"), "bf16");
    EXPECT_EQ(json.at("max_skips"), 25);
    EXPECT_EQ(json.at("dropout"), 0.1) << "not fp32's neighbour of it";
    const auto scaling = json.at("loss_scaling").get<std::string>();
    EXPECT_EQ(scaling.substr(0, 7), precision == "fp16" ? "dynamic" : "off");
    ASSERT_EQ(json.at("strategies").size(), 5U);
    for (const auto& strategy : json.at("strategies")) {
      EXPECT_EQ(strategy.at("losses"), json.at("strategies")[0].at("losses")) << precision;
      for (std::size_t r = 0; r < 3; ++r) { expect_rank(strategy.at("ranks")[r], r); }
    }
  }
}

// The automatic mode differs by strategy, and each mode has other sums.
TEST_F(Compare, MicroBatchesAreReducedInOneModeUnderAllStrategies) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"ddp,zero1,zero2,zero3", "every"}, {"dp,ddp,zero1", "deferred"}};
  for (const auto& [strategies, mode] : table) {
    const Outcome outcome =
        tessera(small("compare", {"--steps", "4", "--accumulate", "2", "--strategies", strategies,
                                  "--json", path("o")}));
    const nlohmann::json json = compared(outcome, path("o"));
    EXPECT_EQ(json.at("accumulate_mode"), mode);
    EXPECT_NE(outcome.out.find("accumulate mode " + mode + " under all"), std::string::npos);
    EXPECT_NE(outcome.out.find("bit-identical under all"), std::string::npos) << outcome.out;
  }
}

TEST_F(Compare, EachStrategyKeepsWhatTheTableSays) {
  const Outcome outcome = tessera(small("compare", {"--steps", "3", "--json", path("out.json")}));
  const nlohmann::json json = compared(outcome, path("out.json"));
  const auto state = [&](int strategy, int rank, const char* part) {
    return json.at("strategies")[strategy]
        .at("ranks")[rank]
        .at("model_state_bytes")
        .at(part)
        .get<std::size_t>();
  };
  const std::size_t full = state(1, 0, "parameters");
  EXPECT_GE(full, 15'600 * sizeof(float));
  EXPECT_EQ(state(0, 0, "parameters"), full);  // dp: all on rank 0, nothing elsewhere
  EXPECT_EQ(state(0, 1, "parameters"), 0U);
  EXPECT_EQ(state(0, 2, "optimizer"), 0U);
  EXPECT_EQ(state(1, 2, "optimizer"), 2 * full);  // ddp: all of everything
  EXPECT_EQ(state(2, 1, "gradients"), full);      // zero1: a third of the optimizer
  EXPECT_EQ(state(2, 1, "optimizer"), 2 * full / 3);
  EXPECT_EQ(state(3, 1, "gradients"), full / 3);  // zero2: a third of the gradients too
  EXPECT_EQ(state(3, 1, "parameters"), full);
  EXPECT_EQ(state(4, 1, "parameters"), full / 3);  // zero3: a third of everything
}

TEST_F(Compare, TableFitsHundredColumnsAndNamesEveryRank) {
  const Outcome outcome = tessera(small("compare", {"--steps", "3", "--strategies", "ddp,zero3"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::size_t begin = 0;
  while (begin < outcome.out.size()) {
    const std::size_t end = outcome.out.find('\n', begin);
    EXPECT_LE(end - begin, 100U) << outcome.out.substr(begin, end - begin);
    begin = end + 1;
  }
  for (const char* part : {"ddp", "zero3", "/ddp", "rank 2", "1.00", "bit-identical"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in\n" << outcome.out;
  }
  for (const char c : outcome.out) { ASSERT_TRUE(c == '\n' || c >= ' ') << static_cast<int>(c); }
}

TEST_F(Compare, OneRankAndOneStrategyIsFine) {
  auto arguments = small("compare", {"--steps", "1", "--strategies", "zero2", "--json", path("o")});
  *(std::find(arguments.begin(), arguments.end(), "--ranks") + 1) = "1";
  const nlohmann::json json = compared(tessera(arguments), path("o"));
  EXPECT_EQ(json.at("strategies").size(), 1U);
  EXPECT_EQ(json.at("strategies")[0].at("ranks").size(), 1U);
}

TEST_F(Compare, HasTheLossesOfTrain) {
  const Outcome outcome = tessera(
      small("compare", {"--steps", "4", "--strategies", "zero1", "--json", path("out.json")}));
  const nlohmann::json json = compared(outcome, path("out.json"));
  ASSERT_EQ(tessera(small("train", {"--steps", "4", "--log", path("run.jsonl")})).status, 0);
  std::vector<double> losses;
  for (const auto& line : log("run.jsonl")) { losses.push_back(line.at("loss")); }
  EXPECT_EQ(json.at("strategies")[0].at("losses").get<std::vector<double>>(), losses);
}

TEST_F(Compare, DoctorShowsMachineBuildAndWhatIsMissing) {
  const Outcome outcome = tessera({"doctor"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part : {"processor", "cores", "memory", "compiler", "Eigen", "communicators",
                           "local", "CUDA driver", "NCCL", "MPI", "matrix products", "oneDNN"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in\n" << outcome.out;
  }
}

TEST_F(Compare, InstructionsAreThoseOfTheEnvironment) {
#ifdef __AVX512F__
  GTEST_SKIP() << "this build uses AVX-512 everywhere, and refuses avx2";
#endif
  const auto before = environment("TESSERA_CPU");
  ::setenv("TESSERA_CPU", "avx2,intel", 1);
  const Outcome doctor = tessera({"doctor"});
  EXPECT_NE(doctor.out.find("AVX2, choices of Intel processors (TESSERA_CPU=avx2,intel)"),
            std::string::npos)
      << doctor.out;
  ::setenv("TESSERA_CPU", "avx3", 1);
  const Outcome train = tessera(small("train", {"--steps", "1"}));
  EXPECT_EQ(train.status, 2);
  EXPECT_NE(train.err.find("TESSERA_CPU=avx3: 'avx3' is none of avx2"), std::string::npos)
      << train.err;
  before ? ::setenv("TESSERA_CPU", before->c_str(), 1) : ::unsetenv("TESSERA_CPU");
}

TEST_F(Compare, HelpAndVersionArePrinted) {
  EXPECT_EQ(tessera({"--version"}).out, "tessera " TESSERA_VERSION "\n");
  for (const char* command : {"train", "compare"}) {
    const Outcome help = tessera({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("--weight-decay X"), std::string::npos);
    EXPECT_NE(help.out.find("(default 0.1)"), std::string::npos);
  }
  EXPECT_EQ(tessera({"--help"}).status, 0);
  EXPECT_NE(tessera({"doctor", "--help"}).out.find("usage: tessera doctor [options]\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::test::compare_test

// tessera plan --time and tessera bench machine, run as a user runs them.
#include <gmock/gmock.h>

#include "cli/command.hpp"

namespace tessera::test::plan_time_test {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using ::testing::HasSubstr;

class PlanTime : public CommandTest {
 protected:
  PlanTime() { write(machine_); }

  /// A small cluster: nodes of 4 devices.
  static Json cluster() {
    return {
        {"tessera_machine", 1},
        {"name", "a cluster"},
        {"flops_per_second", {{"bf16", 1e14}, {"fp32", 1e13}}},
        {"bytes_per_second", 1e12},
        {"kernel_seconds", 2e-6},
        {"collectives", "ring"},
        {"protocols", {{{"name", "simple"}, {"start_seconds", 1e-5}}}},
        {"levels",
         {{{"name", "node"}, {"ranks", 4}, {"bytes_per_second", 1e11}, {"step_seconds", {3e-6}}},
          {{"name", "cluster"}, {"bytes_per_second", 1e10}, {"step_seconds", {1e-5}}}}}};
  }
  void write(const Json& machine) const { write_file(path("machine.json"), machine.dump()); }
  [[nodiscard]] Words plan(const Words& more) const {
    Words all = {"plan", "--for", "cuda", "--precision", "bf16", "--time", path("machine.json")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Json planned(const Words& more) const {
    Words all = plan(more);
    all.insert(all.end(), {"--json", path("out.json")});
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    out_ = outcome.out;
    return Json::parse(read_file(path("out.json")));
  }
  [[nodiscard]] double seconds(const Words& more) const {
    return planned(more).at("strategies")[0].at("seconds_per_step").get<double>();
  }
  void refused(const Words& arguments, const std::string& part) const {
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, HasSubstr(part));
    EXPECT_EQ(outcome.out, "");
  }

  Json machine_ = cluster();
  mutable std::string out_;
};

TEST_F(PlanTime, ShowsEveryStrategysStepAndItsLimit) {
  const Json json = planned({"--model", "gpt2", "--ranks", "16", "--shard-group", "4"});
  ASSERT_EQ(json.at("strategies").size(), 6U);
  EXPECT_EQ(json.at("machine").at("name"), "a cluster");
  for (const Json& strategy : json.at("strategies")) {
    const double seconds = strategy.at("seconds_per_step").get<double>();
    const Json& time = strategy.at("time");
    EXPECT_NEAR(strategy.at("tokens_per_second").get<double>(), 16 * 4 * 1024 / seconds, 1);
    double sum = 0;
    for (const char* part : {"compute_seconds", "memory_seconds", "exposed_bandwidth_seconds",
                             "exposed_latency_seconds", "waiting_seconds"}) {
      sum += time.at(part).get<double>();
    }
    EXPECT_NEAR(sum, seconds, 1e-9 * seconds);
    double phases = 0;
    for (const Json& phase : time.at("phases")) { phases += phase.at("seconds").get<double>(); }
    EXPECT_NEAR(phases, seconds, 1e-9 * seconds);
  }
  EXPECT_THAT(out_, HasSubstr("bound by"));
  EXPECT_THAT(out_, HasSubstr("On a cluster, 65536 tokens a step"));
}

TEST_F(PlanTime, IsNotShorterWithMoreLatencyOrLessBandwidth) {
  const Words zero3 = {"--model", "gpt2", "--ranks", "64", "--strategy", "zero3"};
  const double base = seconds(zero3);
  machine_["levels"][1]["step_seconds"][0] = 1e-4;
  write(machine_);
  EXPECT_GT(seconds(zero3), base);
  machine_ = cluster();
  machine_["levels"][1]["bytes_per_second"] = 1e9;
  write(machine_);
  EXPECT_GT(seconds(zero3), base);
  machine_ = cluster();
  machine_["bytes_per_second"] = 1e11;
  write(machine_);
  EXPECT_GT(seconds(zero3), base);
}

TEST_F(PlanTime, OfZero3IsBoundByLatencyOnManyRanksWhereHybridIsNot) {
  const Json json = planned({"--model", "gpt2", "--batch", "16", "--ranks", "4096", "--strategies",
                             "zero3,hybrid", "--shard-group", "4"});
  const Json& zero3 = json.at("strategies")[0];
  const Json& hybrid = json.at("strategies")[1];
  EXPECT_EQ(zero3.at("time").at("bound"), "latency");
  EXPECT_NE(hybrid.at("time").at("bound"), "latency");
  EXPECT_GT(zero3.at("seconds_per_step").get<double>(),
            2 * hybrid.at("seconds_per_step").get<double>());
}

TEST_F(PlanTime, OfAStackIsSixFlopsAParameterAndToken) {
  const Json json = planned(
      {"--params", "1e9", "--seq", "2048", "--batch", "2", "--ranks", "8", "--strategy", "zero3"});
  const double flops = json.at("strategies")[0].at("time").at("flops").get<double>();
  EXPECT_NEAR(flops, 6e9 * 4096, 0.01 * flops);
}

// Both directions of the link are busy at once, during backward and the next forward.
TEST_F(PlanTime, OfStateOnTheHostIsBoundByTheLink) {
  Json machine = machine_;
  machine["host_bytes_per_second"] = 5e10;
  write(machine);
  const auto step = [&](const char* offload) {
    return seconds({"--params", "1e9", "--seq", "2048", "--batch", "1", "--strategy", "ddp",
                    "--offload", offload});
  };
  const double one_way = 12e9 / 5e10;
  EXPECT_GT(step("state"), one_way);
  EXPECT_LT(step("state"), step("none") + one_way);
}

TEST_F(PlanTime, RefusesUnknownCosts) {
  refused(plan({"--params", "1e9"}), "needs --seq");
  refused(plan({"--offload", "optimizer"}), "an update on the host");
  refused({"plan", "--params", "1e9", "--seq", "64"}, "without --time");
  refused({"plan", "--time", path("machine.json")}, "ranks with a device each");
  refused({"plan", "--time", path("nothing.json")}, "--time: cannot read");
  machine_["levels"].erase(1);
  write(machine_);
  refused(plan({"--ranks", "8", "--strategy", "ddp"}), "no link beyond the 4 ranks");
  machine_["flops_per_second"].erase("bf16");
  machine_["levels"] = cluster()["levels"];
  write(machine_);
  refused(plan({}), "no flops_per_second of bf16");
  machine_["tessera_machine"] = 9;
  write(machine_);
  refused(plan({}), "of version 9");
}

// Rates of one H100, and measured steps on it (docs/benchmarks/gpu.md). The steps have since
// changed, so the plan's error may have too: docs/plan-time-accuracy.md lists the errors. The rates
// do not include these runs.
TEST_F(PlanTime, OfAGpusFiguresIsTheStepThatWasMeasured) {
  const Outcome made = tessera({"bench", "machine", "--from",
                                std::string{kSourceDir} + "/docs/benchmarks/gpu-2026-11-22.json",
                                "--json", path("machine.json")});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("NVIDIA H100 80GB HBM3"),
                              HasSubstr("not measured: links between ranks")));
  const Words gpt2{"--layers", "12", "--hidden", "768", "--heads", "12", "--batch", "64"};
  const Words large{"--layers", "36", "--hidden", "1280", "--heads", "20", "--batch", "8"};
  const Words xl{"--layers", "48", "--hidden", "1600", "--heads", "25"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::pair<Words, double>> measured{
      {with(gpt2, {"--strategy", "ddp"}), 511'424},
      {with(gpt2, {"--strategy", "zero3"}), 509'010},
      {with(large, {"--strategy", "ddp"}), 78'189},
      {with(xl, {"--strategy", "ddp", "--batch", "8"}), 41'002},
      {with(xl, {"--strategy", "ddp", "--batch", "16", "--recompute", "block"}), 38'232}};
  for (const auto& [words, tokens] : measured) {
    const Json json = planned(with(words, {"--ranks", "1", "--seq", "1024", "--vocab", "50304"}));
    const double found = json.at("strategies")[0].at("tokens_per_second").get<double>();
    EXPECT_NEAR(found / tokens, 1, 0.1) << testing::PrintToString(words);
  }
  refused(plan({"--model", "gpt2", "--ranks", "2", "--strategy", "ddp"}),
          "no links between ranks; measure them (scripts/gpu_check.sh multi");
  refused(
      {"bench", "machine", "--from", path("machine.json")},
      "--from " + path("machine.json") + ": the samples are in no document that a check of a GPU");
  refused({"bench", "machine", "--from", path("machine.json"), "--repeat", "3"},
          "--repeat has no effect with --from");
}

TEST_F(PlanTime, OfThisMachineTakesItsMeasuredProfile) {
  const Outcome bench = tessera(
      {"bench", "machine", "--repeat", "1", "--widest", "64", "--json", path("machine.json")});
  ASSERT_EQ(bench.status, 0) << bench.err;
  const Json profile = Json::parse(read_file(path("machine.json")));
  EXPECT_GT(profile.at("kernels").size(), 30U);
  EXPECT_GT(profile.at("flops_per_second").at("fp32").get<double>(), 1e8);
  const Outcome outcome = tessera({"plan", "--ranks", "2", "--time", path("machine.json"),
                                   "--strategies", "ddp,zero3", "--json", path("out.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(read_file(path("out.json")));
  for (const Json& strategy : json.at("strategies")) {
    EXPECT_GT(strategy.at("seconds_per_step").get<double>(), 1e-4);
  }
  refused({"plan", "--ranks", "2", "--threads", "2", "--time", path("machine.json")}, "--threads");
  refused({"plan", "--ranks", "512", "--time", path("machine.json")}, "at most 256 ranks");
}

}  // namespace
}  // namespace tessera::test::plan_time_test

// --strategy hybrid, --shard-group and --mesh, run as a user runs them.
#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>

#include "cli/command.hpp"

namespace tessera::test::hybrid_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
using ::testing::HasSubstr;

class HybridCommand : public CommandTest {
 protected:
  [[nodiscard]] Words on(int ranks, const std::string& command, const Words& more) const {
    Words all = {
        command,   "--layers", "2",       "--hidden",           "20", "--heads", "2", "--seq", "16",
        "--batch", "1",        "--ranks", std::to_string(ranks)};
    if (command != "plan") { all.insert(all.end(), {"--data", path("text.txt")}); }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Json json_of(const Words& arguments) const {
    Words all = arguments;
    all.insert(all.end(), {"--json", path("out.json")});
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    out_ = outcome.out;
    return Json::parse(read_file(path("out.json")));
  }
  void refused(const Words& arguments, const Words& parts) const {
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(outcome.out, "");
    for (const std::string& part : parts) { EXPECT_THAT(outcome.err, HasSubstr(part)); }
  }
  static const Json& named(const Json& document, const std::string& strategy) {
    for (const Json& one : document.at("strategies")) {
      if (one.at("name") == strategy) { return one; }
    }
    throw std::runtime_error{"no " + strategy};
  }
  static std::size_t state(const Json& document, const std::string& strategy) {
    const Json& bytes = named(document, strategy).at("ranks")[0].at("model_state_bytes");
    return bytes.at("parameters").get<std::size_t>() + bytes.at("gradients").get<std::size_t>() +
           bytes.at("optimizer").get<std::size_t>();
  }

  mutable std::string out_;
};

TEST_F(HybridCommand, ComparesWithTheOthersOnFourRanksInGroupsOfTwo) {
  const Json json = json_of(on(4, "compare", {"--steps", "4", "--shard-group", "2"}));
  EXPECT_EQ(json.at("shard_group"), 2);
  ASSERT_EQ(json.at("strategies").size(), 6U);
  for (const Json& rank : named(json, "hybrid").at("ranks")) {
    EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
  }
  EXPECT_EQ(2 * state(json, "hybrid"), state(json, "ddp"));
  EXPECT_EQ(4 * state(json, "zero3"), state(json, "ddp"));
  const auto losses = named(json, "hybrid").at("losses").get<std::vector<double>>();
  const auto others = named(json, "ddp").at("losses").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 4U);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], others[i], small_bounds().later_loss * others[0]);
  }
  EXPECT_THAT(out_, HasSubstr(", hybrid in groups of 2"));
  EXPECT_THAT(out_, HasSubstr("bit-identical under"));
}

TEST_F(HybridCommand, AMeshShardsWhatTheStrategySaysAmongThoseAlongShard) {
  const Json grouped = json_of(
      on(4, "compare", {"--steps", "4", "--shard-group", "2", "--strategies", "ddp,hybrid"}));
  EXPECT_FALSE(grouped.contains("mesh"));
  const Json json = json_of(on(4, "compare", {"--steps", "4", "--mesh", "replicate=2,shard=2"}));
  EXPECT_EQ(json.at("mesh"), (Json{{"replicate", 2}, {"shard", 2}}));
  EXPECT_TRUE(json.at("shard_group").is_null());
  ASSERT_EQ(json.at("strategies").size(), 3U) << "dp and ddp shard nothing";
  for (const char* const name : {"zero1", "zero2", "zero3"}) {
    EXPECT_EQ(named(json, name).at("losses"), named(grouped, "hybrid").at("losses")) << name;
    for (const Json& rank : named(json, name).at("ranks")) {
      EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes")) << name;
    }
  }
  EXPECT_EQ(state(json, "zero3"), state(grouped, "hybrid"));
  EXPECT_EQ(2 * state(json, "zero3"), state(grouped, "ddp"));
  EXPECT_THAT(out_, HasSubstr(", on mesh replicate 2 x shard 2"));
}

TEST_F(HybridCommand, AMeshIsTrainedPlannedAndSearchedOn) {
  const Outcome trained = tessera(on(4, "train",
                                     {"--steps", "2", "--strategy", "zero1", "--mesh",
                                      "shard=2,replicate=2", "--log", path("log")}));
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("zero1 on mesh shard 2 x replicate 2 on 4 ranks"));
  for (const Json& line : log("log")) {
    EXPECT_EQ(line.at("peak_bytes"), line.at("planned_peak_bytes"));
  }
  const Json plan = json_of(on(64, "plan", {"--mesh", "replicate=8,shard=8"}));
  EXPECT_EQ(plan.at("mesh"), (Json{{"replicate", 8}, {"shard", 8}}));
  EXPECT_EQ(plan.at("strategies").size(), 3U);
  const Json found =
      json_of(on(64, "plan", {"--mesh", "replicate=8,shard=8", "--budget", "1GiB"})).at("search");
  EXPECT_THAT(found.at("command").get<std::string>(), HasSubstr("--mesh replicate=8,shard=8"));
}

TEST_F(HybridCommand, RefusesAMeshThatDoesNotFit) {
  const struct {
    const char* mesh;
    const char* text;
  } refusals[] = {
      {"replicate=2,shard=4", "mesh replicate 2 x shard 4"},
      {"replicate=2,shards=2", "'shards' is not a dimension: choose among replicate, shard"},
      {"shard=2,shard=2", "dimension 'shard' is given twice"},
      {"replicate=4,shard=0", "dimension 'shard' has size 0"},
      {"replicate", "--mesh: 'replicate' has no size; give NAME=SIZE"},
      {"replicate=two", "--mesh: 'two' is not a whole number"},
  };
  for (const auto& [mesh, text] : refusals) {
    for (const char* const command : {"train", "compare", "plan"}) {
      Words more = {"--mesh", mesh};
      if (command == std::string{"train"}) { more.insert(more.end(), {"--strategy", "zero2"}); }
      refused(on(4, command, more), {text});
    }
  }
  const std::string mesh = "replicate=2,shard=2";
  refused(on(4, "compare", {"--mesh", mesh, "--strategies", "ddp,zero1"}),
          {"mesh replicate 2 x shard 2: ddp shards nothing"});
  refused(on(4, "train", {"--mesh", mesh, "--strategy", "hybrid", "--shard-group", "2"}),
          {"mesh replicate 2 x shard 2 and --shard-group 2 are both given"});
  refused(on(4, "plan", {"--mesh", mesh, "--shard-group", "2"}), {"are both given"});
  refused({"scale", "--mesh", mesh}, {"--mesh replicate=2: the ranks that --mesh leaves"});
}

TEST_F(HybridCommand, OneGroupIsZero3AndGroupsOfOneAreDdp) {
  for (const char* group : {"3", "1"}) {
    const bool whole = group == std::string{"3"};
    const std::string like = whole ? "zero3" : "ddp";
    const Json json = json_of(on(
        3, "compare", {"--steps", "3", "--shard-group", group, "--strategies", like + ",hybrid"}));
    EXPECT_EQ(state(json, "hybrid"), state(json, like));
    EXPECT_THAT(out_, HasSubstr("bit-identical under all 2 strategies"));
  }
  const Json json = json_of(on(3, "compare", {"--steps", "2", "--strategies", "ddp,hybrid"}));
  EXPECT_EQ(json.at("shard_group"), 3) << "threads are on one machine";
  EXPECT_TRUE(json_of(on(3, "compare", {"--steps", "2", "--strategies", "ddp,zero3"}))
                  .at("shard_group")
                  .is_null());
}

TEST_F(HybridCommand, WritesWeightsThatASampleOfAnotherCutReads) {
  const Outcome trained = tessera(on(4, "train",
                                     {"--steps", "2", "--strategy", "hybrid", "--shard-group", "2",
                                      "--log", path("log"), "--checkpoint", path("weights")}));
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("hybrid in groups of 2 on 4 ranks"));
  for (const Json& line : log("log")) {
    EXPECT_EQ(line.at("peak_bytes"), line.at("planned_peak_bytes"));
  }
  const auto sample = [&](const Words& more) {
    Words all = {"sample",   "--init",  path("weights/model.safetensors"),
                 "--layers", "2",       "--hidden",
                 "20",       "--heads", "2",
                 "--seq",    "16",      "--ranks",
                 "4",        "--count", "8"};
    all.insert(all.end(), more.begin(), more.end());
    return json_of(all);
  };
  const Json grouped = sample({"--strategy", "hybrid", "--shard-group", "2"});
  EXPECT_EQ(grouped.at("shard_group"), 2);
  EXPECT_EQ(grouped.at("peak_bytes"), grouped.at("planned_peak_bytes"));
  EXPECT_EQ(grouped.at("samples"), sample({"--strategy", "ddp"}).at("samples"));
}

TEST_F(HybridCommand, PlansAndScalesWithGroupsThatAreGiven) {
  const Json plan = json_of(on(64, "plan", {"--shard-group", "8"}));
  EXPECT_EQ(plan.at("shard_group"), 8);
  EXPECT_EQ(plan.at("strategies").size(), 6U);
  EXPECT_THAT(out_, HasSubstr(", hybrid in groups of 8"));
  const Json eight = json_of(on(8, "plan", {"--strategy", "zero3"}));
  EXPECT_LT(state(plan, "zero3"), state(plan, "hybrid"));
  EXPECT_LT(state(plan, "hybrid"), 2 * state(eight, "zero3")) << "8 ranks share a copy";
  EXPECT_EQ(json_of(on(64, "plan", {})).at("strategies").size(), 5U);

  const Json stack =
      json_of({"plan", "--params", "7.5e9", "--ranks", "64", "--precision", "bf16",
               "--gradient-dtype", "bf16", "--shard-group", "8", "--strategies", "hybrid"});
  EXPECT_NEAR(static_cast<double>(state(stack, "hybrid")), 16 * 7.5e9 / 8, 1e7);

  const Json scale =
      json_of({"scale", "--model", "gpt-nano", "--ranks", "4,8", "--shard-group", "4", "--budget",
               "64MiB", "--strategies", "zero3,hybrid", "--measure"});
  EXPECT_EQ(scale.at("shard_group"), 4);
  const Json& zero3 = named(scale, "zero3").at("largest");
  const Json& hybrid = named(scale, "hybrid").at("largest");
  EXPECT_EQ(hybrid[0].at("parameters"), zero3[0].at("parameters")) << "one group of four";
  EXPECT_LE(hybrid[1].at("parameters"), zero3[1].at("parameters"));
  EXPECT_THAT(out_, HasSubstr("h hybrid"));
}

TEST_F(HybridCommand, ASearchWithGroupsTriesItBeforeZero3AndPrintsTheCommand) {
  const Words asked = {"plan", "--model",  "gpt2",    "--ranks",       "16", "--batch",
                       "1",    "--budget", "1500MiB", "--shard-group", "8"};
  const Json json = json_of(asked);
  const auto command = json.at("search").at("command").get<std::string>();
  EXPECT_THAT(command, HasSubstr("--strategy hybrid --batch 1"));
  EXPECT_THAT(command, HasSubstr("--shard-group 8 --prefetch 1"));
}

TEST_F(HybridCommand, RefusesImpossibleMeshesAndSaysWhatToDo) {
  refused(on(2, "train", {"--shard-group", "2"}),
          {"--shard-group has no effect under ddp", "hybrid"});
  refused(on(2, "compare", {"--shard-group", "2", "--strategies", "zero3,ddp"}),
          {"--shard-group has no effect under zero3"});
  refused(on(2, "plan", {"--shard-group", "2", "--strategy", "zero1"}),
          {"--shard-group has no effect under zero1"});
  refused(on(6, "train", {"--strategy", "hybrid", "--shard-group", "4"}),
          {"--shard-group is 4", "number of ranks, 6: choose one of 1, 2, 3, 6"});
  refused(on(6, "plan", {"--shard-group", "4"}),
          {"--shard-group is 4", "choose one of 1, 2, 3, 6"});
  refused(on(2, "train", {"--strategy", "hybrid", "--shard-group", "0"}),
          {"--shard-group", "from 1 to"});
  refused(on(8, "plan", {"--strategy", "hybrid"}),
          {"a plan does not know which ranks share a machine", "--shard-group S"});
  refused({"scale", "--strategies", "hybrid"}, {"a plan does not know", "--shard-group S"});
  refused({"scale", "--shard-group", "8"}, {"--shard-group is 8", "number of ranks, 1"});
  refused({"bench", "step", "--shard-group", "2"}, {"--shard-group has no effect", "hybrid"});
  refused({"bench", "step", "--strategies", "hybrid", "--ranks", "3", "--shard-group", "2"},
          {"--shard-group is 2", "number of ranks, 3"});
  refused({"bench", "step", "--strategies", "hybrid", "--shard-group", "2", "--scaling"},
          {"--shard-group", "--scaling"});
}

TEST_F(HybridCommand, IsTimedByBench) {
  const Json json = json_of({"bench",    "step", "--strategies",  "zero3,hybrid",
                             "--ranks",  "2",    "--shard-group", "1",
                             "--repeat", "2",    "--layers",      "1",
                             "--hidden", "16",   "--seq",         "8",
                             "--batch",  "1",    "--vocab",       "32"});
  EXPECT_EQ(json.at("shard_group"), 1);
  EXPECT_EQ(json.at("strategies")[1].at("name"), "hybrid");
}

}  // namespace
}  // namespace tessera::test::hybrid_test

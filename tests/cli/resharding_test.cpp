// --reshard, --persist, --prefetch-backward and --prefetch, run as a user runs them.
#include <algorithm>

#include "cli/command.hpp"

namespace tessera::test::resharding_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class ReshardingOptions : public CommandTest {
 protected:
  [[nodiscard]] Json compared(const Words& more) const {
    Words all = small("compare", {"--steps", "2", "--accumulate", "2", "--accumulate-mode", "every",
                                  "--strategies", "ddp,zero3", "--json", path("compare.json")});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("bit-identical"), std::string::npos) << outcome.out;
    return Json::parse(read_file(path("compare.json")));
  }
  static std::size_t gather(const Json& json, std::size_t strategy) {
    const Json& rank = json.at("strategies")[strategy].at("ranks")[0];
    EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
    return rank.at("at_peak").at("gather").get<std::size_t>();
  }
};

TEST_F(ReshardingOptions, WorkIfAnyStrategyGathersAndShowInItsPeak) {
  const Json plain = compared({});
  const std::size_t usual = gather(plain, 1);
  EXPECT_EQ(gather(plain, 0), 0U);
  const std::vector<Words> larger = {{"--reshard", "after-backward", "--prefetch", "0"},
                                     {"--prefetch", "0", "--persist", "100000"},
                                     {"--prefetch", "1", "--prefetch-backward", "0"}};
  for (const Words& options : larger) {
    const Json json = compared(options);
    EXPECT_EQ(gather(json, 0), 0U);
    // With two blocks, a ring of two slots equals one slot per block.
    EXPECT_EQ(gather(json, 1), usual) << testing::PrintToString(options);
    EXPECT_EQ(json.at("strategies")[0].at("losses"), plain.at("strategies")[0].at("losses"));
  }
  EXPECT_LT(gather(compared({"--prefetch", "0"}), 1), usual);
  EXPECT_EQ(gather(compared({"--prefetch", "0", "--prefetch-backward", "1"}), 1), usual);
  EXPECT_EQ(compared({"--reshard", "after-backward"}).at("reshard"), "after-backward");
}

TEST_F(ReshardingOptions, ShowInPlans) {
  const auto planned = [&](const Words& more) {
    Words all = {"plan",       "--model", "gpt-nano", "--ranks",        "8",
                 "--strategy", "zero3",   "--json",   path("plan.json")};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(read_file(path("plan.json")));
    return json.at("strategies")[0].at("ranks")[0].at("at_peak").at("gather").get<std::size_t>();
  };
  EXPECT_LT(planned({}), planned({"--reshard", "after-backward"}));
  EXPECT_LT(planned({}), planned({"--prefetch-backward", "2"}));
  EXPECT_EQ(planned({"--persist", "1000000"}), planned({"--reshard", "after-backward"}));
}

TEST_F(ReshardingOptions, AreRefusedWhereNothingIsGathered) {
  const auto refused = [&](const Words& arguments, const Words& parts) {
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(outcome.out, "");
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " is not in " << outcome.err;
    }
  };
  const std::vector<Words> options = {{"--prefetch", "2"},
                                      {"--prefetch-backward", "1"},
                                      {"--reshard", "after-backward"},
                                      {"--persist", "100000"}};
  for (const Words& option : options) {
    const Words parts = {option[0], "has no effect under", "zero3"};
    refused(small("train", option), parts);
    Words compare = small("compare", option);
    compare.insert(compare.end(), {"--strategies", "ddp,zero2"});
    refused(compare, parts);
    refused({"plan", "--strategies", "zero1,dp", option[0], option[1]}, parts);
  }
  for (const Words& preset : std::vector<Words>{
           {"--prefetch", "1"}, {"--reshard", "after-forward"}, {"--persist", "0"}}) {
    const Outcome outcome = tessera({"plan", "--strategies", "ddp", preset[0], preset[1]});
    EXPECT_EQ(outcome.status, 0) << "a typed default changes nothing: " << outcome.err;
  }
  refused({"scale", "--strategies", "ddp", "--prefetch", "2"}, {"--prefetch has no effect"});
  refused({"bench", "step", "--strategies", "ddp", "--prefetch", "2"},
          {"--prefetch has no effect"});
  refused(small("train", {"--strategy", "zero3", "--reshard", "never"}),
          {"--reshard", "after-forward or after-backward"});
  refused(small("train", {"--strategy", "zero3", "--persist", "10"}),
          {"--persist is 10", "smallest unit has"});
}

}  // namespace
}  // namespace tessera::test::resharding_test

// tessera plan, and budgets of train and compare, run as a user runs them.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "cli/command.hpp"

namespace tessera::test::plan_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class Plan : public CommandTest {
 protected:
  /// The arguments of a plan of CommandTest::small's run.
  [[nodiscard]] Words small_plan(const Words& more = {}) const {
    Words all = {"plan",  "--layers", "2",       "--hidden", "20",      "--heads", "2",
                 "--seq", "16",       "--ranks", "3",        "--batch", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Json planned(Words arguments, int status = 0) const {
    arguments.insert(arguments.end(), {"--json", path("plan.json")});
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    return Json::parse(read_file(path("plan.json")));
  }
};

std::size_t state_of(const Json& rank) {
  std::size_t sum = 0;
  for (const Json& bytes : rank.at("model_state_bytes")) { sum += bytes.get<std::size_t>(); }
  return sum;
}

TEST_F(Plan, JsonHasTheContractsFields) {
  const Json json = planned(small_plan());
  EXPECT_EQ(json.at("model").at("parameters"), 15'600);
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("comm"), "local");
  EXPECT_TRUE(json.at("budget_bytes").is_null());
  Words names;
  for (const Json& strategy : json.at("strategies")) {
    names.push_back(strategy.at("name"));
    EXPECT_FALSE(strategy.contains("losses"));
    EXPECT_TRUE(strategy.at("fits").is_null());
    int ranks = 0;
    for (const Json& rank : strategy.at("ranks")) {
      EXPECT_EQ(rank.at("rank"), ranks);
      ranks += rank.at("count").get<int>();
      std::size_t sum = 0;
      for (const Json& bytes : rank.at("at_peak")) { sum += bytes.get<std::size_t>(); }
      EXPECT_EQ(rank.at("planned_peak_bytes"), sum);
      EXPECT_EQ(rank.at("peak_bytes"), sum);
      EXPECT_LE(rank.at("most_in_use_bytes"), sum);
      EXPECT_TRUE(rank.at("most_in_use_at").at("phase").is_string());
    }
    EXPECT_EQ(ranks, 3);
  }
  EXPECT_EQ(names, (Words{"dp", "ddp", "zero1", "zero2", "zero3"}));
  EXPECT_EQ(json.at("strategies")[0].at("ranks").size(), 2U);  // dp: rank 0 and the others
  EXPECT_EQ(json.at("strategies")[4].at("ranks").size(), 1U);
}

// In the last block's backward, its gradients join the root's, and most activations are live.
TEST_F(Plan, SaysWhereMostIsInUse) {
  const Json at = planned(small_plan({"--strategy", "zero3"}))
                      .at("strategies")[0]
                      .at("ranks")[0]
                      .at("most_in_use_at");
  EXPECT_EQ(at.at("phase"), "backward");
  EXPECT_EQ(at.at("unit"), "h.1");
  EXPECT_EQ(at.at("step"), 0);
}

TEST_F(Plan, IsWhatCompareMeasures) {
  for (const Words& options : {Words{"--accumulate", "2", "--accumulate-mode", "every",
                                     "--prefetch", "0", "--reduce-dtype", "bf16"},
                               Words{"--pack", "10"}}) {
    Words arguments = small("compare", {"--steps", "2", "--json", path("compare.json")});
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = tessera(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json measured = Json::parse(read_file(path("compare.json")));
    const Json plan = planned(small_plan(options));
    EXPECT_EQ(plan.at("model"), measured.at("model"));
    for (std::size_t s = 0; s < 5; ++s) {
      std::size_t next = 0;
      for (const Json& kind : plan.at("strategies")[s].at("ranks")) {
        for (int i = 0; i < kind.at("count"); ++i) {
          const Json& rank = measured.at("strategies")[s].at("ranks")[next++];
          EXPECT_EQ(kind.at("planned_peak_bytes"), rank.at("peak_bytes"));
          EXPECT_EQ(kind.at("at_peak"), rank.at("at_peak"));
          EXPECT_EQ(kind.at("model_state_bytes"), rank.at("model_state_bytes"));
        }
      }
      EXPECT_EQ(next, 3U);
    }
  }
}

TEST_F(Plan, GivesThePapersModelStates) {
  const Json json = planned({"plan", "--params", "7.5e9", "--ranks", "64", "--precision", "fp16",
                             "--gradient-dtype", "fp16"});
  EXPECT_EQ(json.at("model").at("parameters"), 7'500'000'000);
  const auto gigabytes = [&](int strategy) {
    return static_cast<double>(state_of(json.at("strategies")[strategy].at("ranks")[0])) / 1e9;
  };
  EXPECT_NEAR(gigabytes(1), 120, 0.5);
  EXPECT_NEAR(gigabytes(2), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(3), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(4), 1.88, 0.005);
  EXPECT_EQ(json.at("strategies")[4].at("ranks")[0].at("at_peak").at("activations"), 0);
  const Outcome shown = tessera({"plan", "--params", "7.5e9", "--ranks", "64", "--precision",
                                 "fp16", "--gradient-dtype", "fp16"});
  for (const char* part : {"120 GB", "31.4 GB", "16.6 GB", "1.88 GB", "fp16"}) {
    EXPECT_THAT(shown.out, HasSubstr(part));
  }
}

TEST_F(Plan, LowPrecisionHoldsLess) {
  const auto peak = [&](const Words& more) {
    return planned(small_plan(more)).at("strategies")[0].at("ranks")[0];
  };
  const Json fp32 = peak({"--strategy", "ddp"});
  const Json bf16 = peak({"--strategy", "ddp", "--precision", "bf16"});
  const auto bytes = [](const Json& rank, const char* part) {
    return rank.at("at_peak").at(part).get<std::size_t>();
  };
  EXPECT_EQ(2 * bytes(bf16, "parameters"), bytes(fp32, "parameters"));
  EXPECT_EQ(bytes(bf16, "gradients"), bytes(fp32, "gradients"));
  EXPECT_EQ(2 * bytes(bf16, "optimizer"), 3 * bytes(fp32, "optimizer"));  // and master weights
  EXPECT_LT(bytes(bf16, "activations"), bytes(fp32, "activations"));
}

TEST_F(Plan, TablesFitHundredColumns) {
  for (const Words& arguments :
       {small_plan({"--budget", "1GiB", "--strategies", "dp,zero3"}),
        small_plan({"--budget", "1GiB"}),
        Words{"plan", "--ranks", TESSERA_SANITIZED ? "10000" : "1048576", "--strategies", "dp"}}) {
    const Outcome outcome = tessera(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::istringstream lines{outcome.out};
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("  tessera ", 0) == 0) { continue; }  // a command to copy
      EXPECT_LE(line.size(), 100U) << line;
    }
  }
}

// 70 billion parameters on 1,024 ranks, and a billion tokens per micro-batch: about a second of
// processor time (the bound leaves room for a slow or busy machine), and less than 200 MB.
TEST_F(Plan, OfALargeModelTakesLittleTimeAndMemory) {
  const Outcome outcome =
      tessera({"plan", "--layers", "80", "--hidden", "8192", "--heads", "64", "--vocab", "32000",
               "--seq", "4096", "--batch", TESSERA_SANITIZED ? "250" : "250000", "--accumulate",
               "1000000", "--ranks", "1024"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  if (!TESSERA_SANITIZED) {  // instrumented, the program is much slower and larger
    EXPECT_LT(outcome.processor_seconds, 10.0);
    EXPECT_LT(outcome.most_kib, 200'000);
  }
  EXPECT_THAT(outcome.out, HasSubstr("64728743936 parameters"));
}

// Of 1,024 places those along tensor are planned once for each size of their parts. On an idle
// machine a stack takes 0.4 s and a GPT 1.5 s, instead of minutes; a busy one takes twice as long.
TEST_F(Plan, OfALargeMeshTakesLittleTime) {
  const std::string shard = TESSERA_SANITIZED ? "2" : "64";
  const std::string ranks = TESSERA_SANITIZED ? "2048" : "65536";
  const std::vector<Words> models = {{"--params", "1e12"},
                                     {"--layers", "64", "--hidden", "8192", "--heads", "64",
                                      "--vocab", "50257", "--seq", "2048", "--batch", "1"}};
  for (const Words& model : models) {
    SCOPED_TRACE(::testing::PrintToString(model));
    Words words = {"plan",
                   "--ranks",
                   ranks,
                   "--mesh",
                   "pipe=64,shard=" + shard + ",tensor=16",
                   "--json",
                   path("plan.json"),
                   "--strategies",
                   "zero3"};
    words.insert(words.end(), model.begin(), model.end());
    const Outcome outcome = tessera(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    // One place after the other they took two minutes.
    if (!TESSERA_SANITIZED) { EXPECT_LT(outcome.processor_seconds, 20.0); }
    const Json plan = Json::parse(read_file(path("plan.json")));
    int counted = 0;
    for (const Json& kind : plan.at("strategies")[0].at("ranks")) {
      counted += kind.at("count").get<int>();
    }
    EXPECT_EQ(std::to_string(counted), ranks);
  }
}

// Nothing is quadratic in layers or ranks, and a plan that cannot fit is abandoned early: eight
// times as many take about eight times as long, where 64 would be quadratic. Processors and their
// load differ by less than the factor of three between.
TEST_F(Plan, OfManyLayersOnManyRanksTakesTimeInProportion) {
  const auto seconds = [&](int layers, int ranks) {
    const std::string many = std::to_string(layers);
    const std::string enough = std::to_string(layers + layers / 4) + "MiB";
    const std::string little = std::to_string(std::max(layers / 80, 1)) + "MiB";
    const std::vector<Words> table = {
        {"plan", "--layers", many, "--ranks", "64", "--budget", enough, "--batch", "64"},
        {"plan", "--layers", many, "--ranks", "64", "--budget", little, "--batch", "64"},
        {"plan", "--layers", many, "--ranks", std::to_string(ranks)},
        {"scale", "--ranks", std::to_string(ranks)}};
    double sum = 0.0;
    for (const Words& words : table) {
      SCOPED_TRACE(::testing::PrintToString(words));
      const Outcome outcome = tessera(words);
      EXPECT_EQ(outcome.status, std::ranges::find(words, little) != words.end() ? 3 : 0)
          << outcome.err;
      sum += outcome.processor_seconds;
    }
    return sum;
  };
  if (TESSERA_SANITIZED) {
    seconds(200, 1000);
    return;
  }
  const double few = seconds(500, 131'072);
  EXPECT_LT(seconds(4000, 1'048'576), 24 * few);
}

class Budget : public Plan {
 protected:
  [[nodiscard]] std::size_t peak(const std::string& strategy) const {
    return planned(small_plan({"--strategy", strategy}))
        .at("strategies")[0]
        .at("ranks")[0]
        .at("planned_peak_bytes");
  }
};

TEST_F(Budget, ExactlyThePlanIsEnoughForARun) {
  for (const std::string strategy : {"ddp", "zero3"}) {
    const std::size_t bytes = peak(strategy);
    const auto train = [&](std::size_t budget) {
      return tessera(small("train", {"--steps", "2", "--strategy", strategy, "--log", path("log"),
                                     "--budget", std::to_string(budget)}));
    };
    const Outcome enough = train(bytes);
    EXPECT_EQ(enough.status, 0) << enough.err;
    const Json line = log("log").at(1);
    EXPECT_EQ(line.at("peak_bytes"), line.at("planned_peak_bytes"));
    EXPECT_EQ(line.at("peak_bytes"), Json(std::vector<std::size_t>(3, bytes)));

    std::filesystem::remove(path("log"));
    const Outcome refused = train(bytes - 1);
    EXPECT_EQ(refused.status, 3);
    EXPECT_EQ(refused.out, "");
    EXPECT_FALSE(std::filesystem::exists(path("log")));
    for (const std::string& part :
         {std::string{"--budget"}, strategy, std::string{"optimizer"}, std::string{"\nuse "}}) {
      EXPECT_THAT(refused.err, HasSubstr(part));
    }
  }
}

TEST_F(Budget, OfCompareHoldsForEveryStrategy) {
  const auto compare = [&](const std::string& strategies) {
    return tessera(small("compare", {"--steps", "1", "--strategies", strategies, "--budget",
                                     std::to_string(peak("zero3")), "--json", path("o.json")}));
  };
  EXPECT_EQ(compare("zero3").status, 0);
  EXPECT_EQ(Json::parse(read_file(path("o.json"))).at("budget_bytes"), peak("zero3"));
  const Outcome refused = compare("zero3,ddp");
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.err, HasSubstr("under ddp rank 0 would hold"));
}

TEST_F(Budget, OfAPlanIsCheckedForEachStrategy) {
  const std::string budget = std::to_string(peak("zero1"));
  const Json json = planned(small_plan({"--budget", budget, "--strategies", "ddp,zero1"}));
  EXPECT_EQ(json.at("budget_bytes"), peak("zero1"));
  EXPECT_EQ(json.at("strategies")[0].at("fits"), false);
  EXPECT_EQ(json.at("strategies")[1].at("fits"), true);
  EXPECT_EQ(planned(small_plan({"--budget", budget, "--strategies", "ddp"}), 3)
                .at("strategies")[0]
                .at("fits"),
            false);
}

/// The arguments of the command that a search found, without "tessera".
Words found_command(const Json& json, const std::string& data) {
  std::istringstream text{json.at("search").at("command").get<std::string>()};
  Words words;
  for (std::string word; text >> word;) { words.push_back(word == "PATH" ? data : word); }
  EXPECT_EQ(words.front(), "tessera");
  words.erase(words.begin());
  return words;
}

TEST_F(Budget, AloneFindsTheCheapestSettingThatFits) {
  // There is room for everything: plain ddp, with one micro-batch.
  const Json roomy = planned(small_plan({"--budget", "1GiB", "--accumulate", "3"}));
  EXPECT_EQ(roomy.at("strategies")[0].at("name"), "ddp");
  EXPECT_EQ(roomy.at("batch"), 6);
  EXPECT_EQ(roomy.at("accumulate"), 1);
  EXPECT_EQ(roomy.at("search").at("tried"), 1);
  // One byte less than ddp needs: zero1 has the same traffic and takes less memory.
  const Json tight = planned(small_plan({"--budget", std::to_string(peak("ddp") - 1)}));
  EXPECT_EQ(tight.at("strategies")[0].at("name"), "zero1");
  EXPECT_EQ(tight.at("batch"), 2);
  EXPECT_EQ(tight.at("strategies")[0].at("fits"), true);
}

TEST_F(Budget, AloneGivesACommandThatRuns) {
  const Json json = planned(small_plan({"--budget", std::to_string(peak("zero3") - 1)}));
  EXPECT_EQ(json.at("search").at("found"), true);
  Words command = found_command(json, path("text.txt"));
  command.insert(command.end(), {"--steps", "1", "--log", path("log")});
  const Outcome outcome = tessera(command);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(log("log").at(0).at("peak_bytes")[0],
            json.at("strategies")[0].at("ranks")[0].at("planned_peak_bytes"));
}

TEST_F(Budget, AloneOffloadsTheOptimizerWhereNothingElseFits) {
  const Words least = {"--budget", "1", "--offload"};
  const auto peak_of = [&](const char* offload) {
    Words words = least;
    words.emplace_back(offload);
    const Json json = planned(small_plan(words), 3);
    EXPECT_EQ(json.at("offload"), offload);
    return json.at("strategies")[0].at("ranks")[0].at("planned_peak_bytes").get<std::size_t>();
  };
  EXPECT_LT(peak_of("optimizer"), peak_of("none"));
  const std::string budget = std::to_string(peak_of("none") - 1);
  const Outcome shown = tessera(small_plan({"--budget", budget, "--json", path("plan.json")}));
  ASSERT_EQ(shown.status, 0) << shown.err;
  for (const char* part :
       {", offload optimizer", "(beside it ", "without --offload optimizer, which",
        "of host memory a rank (on the cpu: of the same machine)",
        "the cheapest that fits with it, after"}) {
    EXPECT_THAT(shown.out, HasSubstr(part));
  }
  const Json json = Json::parse(read_file(path("plan.json")));
  EXPECT_EQ(json.at("offload"), "optimizer");
  const Json& rank = json.at("strategies")[0].at("ranks")[0];
  EXPECT_GT(rank.at("planned_host_peak_bytes"), 0);

  Words command = found_command(json, path("text.txt"));
  command.insert(command.end(), {"--steps", "2", "--log", path("log"), "--report", path("r.html")});
  const Outcome run = tessera(command);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(log("log").at(1).at("peak_bytes")[0], rank.at("planned_peak_bytes"));
  EXPECT_LT(rank.at("planned_peak_bytes").get<std::size_t>(), std::stoull(budget) + 1);

  const Outcome cuda = tessera(small_plan({"--budget", "1", "--for", "cuda"}));
  EXPECT_EQ(cuda.status, 3);
  EXPECT_THAT(cuda.err, HasSubstr("with --recompute block --offload optimizer needs the least"));
}

// N ranks cannot have shards smaller than 1/N or groups larger than N.
TEST_F(Budget, ItsAdviceHelps) {
  const auto advice = [&](Words words) {
    Words all = {"plan", "--params", "1e9", "--ranks", "8", "--budget", "1MiB"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 3);
    return outcome.err.substr(outcome.err.find("\nuse "));
  };
  EXPECT_THAT(
      advice({"--strategy", "hybrid", "--shard-group", "2"}),
      HasSubstr("use a larger --shard-group, zero3, --offload optimizer or a smaller model"));
  const std::string whole = "use --offload optimizer, more ranks or a smaller model";
  EXPECT_THAT(advice({"--strategy", "hybrid", "--shard-group", "8"}), HasSubstr(whole));
  EXPECT_THAT(advice({"--strategy", "zero3"}), HasSubstr(whole));
  EXPECT_THAT(advice({"--strategy", "zero3", "--optimizer", "sgd", "--momentum", "0"}),
              HasSubstr("use more ranks or a smaller model"));
  EXPECT_THAT(advice({"--strategy", "ddp", "--offload", "optimizer"}),
              HasSubstr("use a strategy that shards more, more ranks or a smaller model"));
  EXPECT_THAT(advice({}), HasSubstr("use more ranks or a smaller model"));
}

TEST_F(Budget, AloneSaysWhyNothingFits) {
  const Outcome outcome = tessera(small_plan({"--budget", "10KiB", "--json", path("no.json")}));
  EXPECT_EQ(outcome.status, 3);
  for (const char* part :
       {"nothing fits --budget 10.0 KiB", "needs the least", "optimizer", "\nuse "}) {
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
  const Json json = Json::parse(read_file(path("no.json")));
  EXPECT_EQ(json.at("search").at("found"), false);
  EXPECT_EQ(json.at("strategies")[0].at("fits"), false);
  EXPECT_EQ(json.at("search").at("tried"), 13 * 5 * 2)
      << "each with all that can be recomputed, and with the optimizer offloaded too";
  EXPECT_THAT(tessera({"plan", "--ranks", "2", "--budget", "10KiB"}).err,
              HasSubstr("choices that do not split the model (whose states alone exceed the "
                        "budget) zero3"));
}

}  // namespace
}  // namespace tessera::test::plan_test

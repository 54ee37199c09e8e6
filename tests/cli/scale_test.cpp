// tessera scale finds the largest model that fits, and a run uses the planned memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "cli/command.hpp"
#include "cli/scale_settings.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/hub.hpp"
#include "tessera/profile/html_report.hpp"
#include "tools/options/option_values.hpp"
#include "tools/plan/budget.hpp"
#include "tools/scale/scale_document.hpp"
#include "tools/scale/scale_measure.hpp"

namespace tessera::tools::scale_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr auto settings_of = test::scale_settings;

/// Options of a family whose members need a few MiB and little time.
std::vector<std::string> tiny(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"--model", "gpt-nano", "--seq", "16", "--batch", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

ScaleResult scaled(const Settings& settings) {
  const Family family = family_of(settings);
  const std::size_t budget = scale_budget(settings);
  return {settings, family, budget, scale_points(settings, family, budget)};
}

// Small enough to try every case, so every case is tried.
TEST(ScaleSearch, FindsTheLargestFromAnyGuessInFewTries) {
  for (std::int64_t last = 1; last <= 40; ++last) {
    for (std::int64_t answer = 0; answer <= last; ++answer) {
      for (std::int64_t guess = 0; guess <= last + 1; ++guess) {
        int asked = 0;
        const std::int64_t found = largest(last, guess, [&](std::int64_t index) {
          EXPECT_TRUE(index >= 1 && index <= last) << index;
          ++asked;
          return index <= answer;
        });
        ASSERT_EQ(found, answer) << "of " << last << " from " << guess;
        ASSERT_LE(asked, 13);
        if (guess == answer && guess > 0) { ASSERT_LE(asked, 2); }
      }
    }
  }
}

TEST(ScaleSearch, OneLargerWouldNotFit) {
  const std::vector<std::vector<std::string>> asked = {
      tiny({"--ranks", "1,3,64", "--budget", "6MiB"}),
      {"--model", "llama3-8b", "--seq", "2048", "--batch", "1", "--ranks", "1,3,64"},
      {"--model", "qwen3-0.6b", "--aspect", "100", "--seq", "2048", "--batch", "1", "--ranks",
       "1,3,64"},
      {"--model", test::hub_folder("qwen2"), "--ranks", "1,3,64", "--budget", "6MiB"}};
  for (const std::vector<std::string>& words : asked) {
    const Settings settings = settings_of(words);
    const ScaleResult result = scaled(settings);
    ASSERT_EQ(result.points.size(), 15U);
    for (const ScalePoint& point : result.points) {
      SCOPED_TRACE(testing::Message() << result.family.name << " under "
                                      << to_string(point.strategy) << " on " << point.ranks);
      ASSERT_TRUE(point.fits());
      EXPECT_LE(point.peak_bytes(), result.budget_bytes);
      const NamedModel larger{"", result.family.member(point.index + 1)};
      const auto plan = plan_training(settings, larger, point.strategy, point.ranks);
      EXPECT_FALSE(fits({point.strategy, plan}, result.budget_bytes));
    }
  }
}

// What bisection assumes.
TEST(ScaleSearch, AMemberHoldsMoreThanTheOneBefore) {
  for (const std::string& model :
       {std::string{"gpt2-medium"}, std::string{"llama3-8b"}, std::string{"qwen3-4b"},
        test::hub_folder("qwen2"), test::hub_folder("qwen3")}) {
    const Settings settings = settings_of({"--model", model, "--seq", "16", "--batch", "1"});
    const Family family = family_of(settings);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
      std::size_t before = 0;
      for (std::int64_t k = 1; k <= 40; ++k) {
        const StrategyPlan plan{strategy,
                                plan_training(settings, {"", family.member(k)}, strategy, 3)};
        const std::size_t peak = plan.fullest().memory.peak_bytes;
        ASSERT_GT(peak, before) << model << " of " << k << " layers under " << to_string(strategy);
        before = peak;
      }
    }
  }
}

TEST(ScaleSearch, BeginsAtTheSmallestMemberThatTheMeshCanSplit) {
  const auto smallest = [](const std::string& model, const std::string& mesh) {
    const ScalePoint point = scaled(settings_of({"--model", model, "--mesh", mesh, "--ranks", "8",
                                                 "--strategies", "ddp", "--budget", "1KiB"}))
                                 .points.at(0);
    EXPECT_FALSE(point.fits());
    return point.model.layers;
  };
  EXPECT_EQ(smallest("gpt2", "tensor=4"), 1);  // ranks without a head are allowed
  EXPECT_EQ(smallest("gpt2", "pipe=4"), 4);
  EXPECT_EQ(smallest("llama2-7b", "tensor=4"), 1);
  EXPECT_EQ(smallest("llama3-8b", "tensor=4"), 14);  // four heads of keys, k/4 rounded
  EXPECT_EQ(smallest("llama3-8b", "pipe=2,tensor=4"), 14);
  const ScalePoint fits =
      scaled(settings_of({"--model", "llama3-8b", "--mesh", "tensor=8", "--seq", "2048", "--ranks",
                          "8", "--strategies", "ddp", "--budget", "80GiB"}))
          .points.at(0);
  EXPECT_TRUE(fits.fits());
  EXPECT_GE(fits.model.key_heads(), 8);
}

TEST(ScaleSearch, StopsAtTheEndOfTheFamily) {
  const ScaleResult result = scaled(
      settings_of({"--budget", "8EiB", "--ranks", "1", "--strategies", "ddp", "--aspect", "1024"}));
  EXPECT_EQ(result.points[0].index, result.family.last());
  EXPECT_TRUE(result.points[0].last_of_family);
  EXPECT_THAT(scale_text(result), HasSubstr("(* the largest of the family"));
}

TEST(ScaleMeasure, SaysWhatDidNotRunAndWhy) {
  const auto why = [](const std::vector<std::string>& more) {
    Settings settings = settings_of(more);
    return measure(settings, scaled(settings).points.at(0)).why_not;
  };
  const auto one = [&](const std::string& ranks, const std::vector<std::string>& more) {
    std::vector<std::string> words = tiny({"--strategies", "zero3", "--ranks", ranks});
    words.insert(words.end(), more.begin(), more.end());
    return why(words);
  };
  EXPECT_EQ(one("1", {"--budget", "4MiB"}), "");
  EXPECT_EQ(one("1", {"--budget", "1KiB"}), "no fit");
  EXPECT_EQ(one("300", {"--budget", "16MiB"}), "processes");
  EXPECT_EQ(one("2", {"--budget", "16MiB", "--comm", "mpi"}), "processes");
  EXPECT_EQ(one("300", {"--budget", "4MiB", "--comm", "local"}), "threads");
  EXPECT_EQ(one("1", {"--budget", "100TiB"}), "memory");
  EXPECT_EQ(one("1", {"--budget", "4MiB", "--accumulate", "1000000"}), "time");
  EXPECT_EQ(one("1", {"--budget", "4MiB", "--precision", "bf16"}), "");
}

TEST(ScaleMeasure, ADeviationOfOneByteIsNamed) {
  ScaleResult result =
      scaled(settings_of(tiny({"--ranks", "3", "--budget", "4MiB", "--strategies", "dp"})));
  ScalePoint& point = result.points[0];
  point.measured = Measurement{};
  for (int r = 0; r < 3; ++r) {
    point.measured->peak_bytes.push_back(point.plan.of(r).memory.peak_bytes);
  }
  EXPECT_EQ(deviation(result.points), "");
  ++point.measured->peak_bytes[2];
  EXPECT_THAT(deviation(result.points), HasSubstr("dp on 3 ranks: rank 2 held "));
}

TEST(ScaleChart, IsNarrowAndHasEveryNumberOfRanks) {
  const std::string ranks = "1,2,4,8,16,32,64,128,256,512,1024,16384";
  const ScaleResult result = scaled(settings_of({"--ranks", ranks}));
  const std::string chart = scale_chart(result);
  std::istringstream lines{scale_text(result) + chart};
  for (std::string line; std::getline(lines, line);) { EXPECT_LE(line.size(), 100U) << line; }
  for (const std::string& n : parse_list(ranks)) { EXPECT_THAT(chart, HasSubstr(" " + n)); }
  EXPECT_EQ(scale_chart(scaled(settings_of({"--budget", "1KiB"}))), "");
}

TEST(ScaleText, IsNarrowForALongRule) {
  const std::string text =
      scale_text(scaled(settings_of({"--model", "llama3-70b", "--ranks", "8"})));
  EXPECT_THAT(text, HasSubstr("key heads = k/10"));
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) { EXPECT_LE(line.size(), 100U) << line; }
}

TEST(ScaleChart, ALargerModelStandsHigher) {
  const std::string chart =
      scale_chart(scaled(settings_of({"--ranks", "64", "--strategies", "ddp,zero3"})));
  const std::string drawn = chart.substr(chart.find('\n'));
  EXPECT_LT(drawn.find('3'), drawn.rfind(" d\n"));
}

class Scale : public test::CommandTest {
 protected:
  [[nodiscard]] json results(const std::vector<std::string>& more, int status = 0) const {
    std::vector<std::string> words = tiny(more);
    words.insert(words.begin(), "scale");
    words.insert(words.end(), {"--json", path("out.json")});
    const test::Outcome outcome = tessera(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    return json::parse(test::read_file(path("out.json")));
  }
  void refused(std::vector<std::string> words, const std::vector<std::string>& parts) const {
    words.insert(words.begin(), "scale");
    SCOPED_TRACE(testing::PrintToString(words));
    const test::Outcome outcome = tessera(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    for (const std::string& part : parts) { EXPECT_THAT(outcome.err, HasSubstr(part)); }
  }
};

std::vector<std::int64_t> parameters(const json& strategy) {
  std::vector<std::int64_t> all;
  for (const json& point : strategy.at("largest")) { all.push_back(point.at("parameters")); }
  return all;
}

TEST_F(Scale, JsonIsADocumentOfTheReport) {
  const json document = results({"--ranks", "1,4", "--budget", "4MiB"});
  EXPECT_EQ(document.at("kind"), "scale");
  EXPECT_THAT(document.at("command").get<std::string>(),
              testing::StartsWith("tessera scale --model gpt-nano --seq 16 --batch 1 --ranks 1,4"));
  EXPECT_EQ(document.at("family"), "gpt-nano");
  EXPECT_EQ(document.at("budget_bytes"), 4 << 20);
  EXPECT_EQ(document.at("ranks"), (json{1, 4}));
  ASSERT_EQ(document.at("strategies").size(), 5U);
  for (const json& strategy : document.at("strategies")) {
    ASSERT_EQ(strategy.at("largest").size(), 2U);
    for (const json& point : strategy.at("largest")) {
      const std::int64_t k = point.at("layers");
      EXPECT_EQ(point.at("hidden"), 32 * k);
      EXPECT_EQ(point.at("heads"), k);
      EXPECT_EQ(point.at("key_heads"), k);
      EXPECT_EQ(point.at("head_size"), 32);
      EXPECT_EQ(point.at("mlp"), 128 * k);
      // (256 + 16) h + k (12 h^2 + 13 h) + 2 h
      EXPECT_EQ(point.at("parameters"), 274 * 32 * k + k * (12 * 32 * k + 13) * 32 * k);
      EXPECT_TRUE(point.at("measured_peak_bytes").is_null());
      std::size_t sum = 0;
      for (const json& bytes : point.at("at_peak")) { sum += bytes.get<std::size_t>(); }
      EXPECT_EQ(point.at("peak_bytes"), sum);
      EXPECT_LE(sum, std::size_t{4} << 20);
    }
  }
  EXPECT_NO_THROW((void)html_report(document.dump()));
}

TEST_F(Scale, MoreRanksHelpZero3AndNotDdp) {
  const json document = results(
      {"--ranks", "1,2,4,16,64", "--budget", "8MiB", "--strategies", "ddp,zero1,zero2,zero3"});
  const std::vector<std::int64_t> ddp = parameters(document.at("strategies")[0]);
  const std::vector<std::int64_t> zero3 = parameters(document.at("strategies")[3]);
  EXPECT_THAT(ddp, testing::Each(ddp[0]));
  EXPECT_TRUE(std::ranges::is_sorted(zero3)) << testing::PrintToString(zero3);
  EXPECT_GT(zero3.back(), 2 * ddp.back());
  const json& last = document.at("strategies")[3].at("largest")[4];
  EXPECT_DOUBLE_EQ(last.at("ratio_to_ddp").get<double>(),
                   static_cast<double>(zero3.back()) / static_cast<double>(ddp.back()));
}

TEST_F(Scale, MeasuredMemoryIsPlannedMemory) {
  const json document =
      results({"--ranks", "1,2,3,300", "--budget", "16MiB", "--accumulate", "2", "--measure"});
  for (const json& strategy : document.at("strategies")) {
    for (const json& point : strategy.at("largest")) {
      if (point.at("ranks") == 300) {
        EXPECT_TRUE(point.at("measured_peak_bytes").is_null());
        EXPECT_THAT(point.at("not_measured").get<std::string>(), HasSubstr("--comm mpi"));
        continue;
      }
      EXPECT_EQ(point.at("measured_peak_bytes"), point.at("peak_bytes"));
      EXPECT_FALSE(point.contains("not_measured"));
    }
  }
  EXPECT_THAT(test::read_file(path("out")), HasSubstr("measured 15 of 20 points: as planned"));
}

TEST_F(Scale, MeasuresModelsOfAFolderWithoutWeights) {
  std::filesystem::create_directory(path("model"));
  std::filesystem::copy(test::hub_folder("llama3") + "/config.json", path("model"));
  const test::Outcome outcome = tessera({"scale", "--measure", "--model", path("model"), "--batch",
                                         "1", "--ranks", "1,2", "--budget", "2MiB"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("The largest " + path("model") + " model"));
  EXPECT_THAT(outcome.out, HasSubstr("measured 10 of 10 points: as planned"));
}

// The members, written as models of the hub and planned from there.
TEST_F(Scale, APlanConfirmsTheLargestAndRefusesTheNext) {
  const std::vector<std::string> run = {"--ranks", "8", "--batch", "1", "--strategies", "zero3"};
  const auto planned = [&](const nn::DecoderConfig& model, const std::string& budget) {
    std::filesystem::create_directory(path("model"));
    test::write_file(path("model/config.json"), nn::hub_config_text(nn::hub_config(model)));
    std::vector<std::string> words = {"plan", "--model", path("model"), "--budget", budget};
    words.insert(words.end(), run.begin(), run.end());
    return tessera(words).status;
  };
  for (const char* model : {"gpt2", "gpt2-medium", "llama3-8b", "mistral-7b", "qwen3-0.6b"}) {
    SCOPED_TRACE(model);
    std::vector<std::string> words = {"scale",    "--model", model,    "--seq",         "1024",
                                      "--budget", "24GiB",   "--json", path("out.json")};
    words.insert(words.end(), run.begin(), run.end());
    const test::Outcome outcome = tessera(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json point =
        json::parse(test::read_file(path("out.json"))).at("strategies")[0].at("largest")[0];
    const std::int64_t k = point.at("layers");
    const Family family = family_of(settings_of({"--model", model, "--seq", "1024"}));
    const nn::DecoderConfig largest = family.member(k);
    EXPECT_EQ(point.at("hidden"), largest.hidden);
    EXPECT_EQ(point.at("heads"), largest.heads);
    EXPECT_EQ(point.at("key_heads"), largest.key_heads());
    EXPECT_EQ(point.at("head_size"), largest.head_size());
    EXPECT_EQ(point.at("mlp"), largest.mlp_elems());
    const std::size_t peak = point.at("peak_bytes");
    EXPECT_EQ(planned(largest, std::to_string(peak)), 0);
    EXPECT_EQ(planned(largest, std::to_string(peak - 1)), 3);
    EXPECT_EQ(planned(family.member(k + 1), "24GiB"), 3);
  }
}

TEST_F(Scale, ClaimsNothingIfNothingRan) {
  (void)results({"--ranks", "300", "--budget", "16MiB", "--measure"});
  const std::string told = test::read_file(path("out"));
  EXPECT_THAT(told, HasSubstr("measured none of 5 points"));
  EXPECT_THAT(told, HasSubstr("not measured, processes: "));
  EXPECT_THAT(told, testing::Not(HasSubstr("as planned")));
}

TEST_F(Scale, ABudgetBelowTheSmallestModelIsStatusThree) {
  const json document = results({"--budget", "100KiB", "--ranks", "1,8"}, 3);
  EXPECT_TRUE(document.at("strategies")[0].at("largest")[1].at("parameters").is_null());
  const std::string told = test::read_file(path("err"));
  EXPECT_THAT(told, HasSubstr("not even the smallest gpt-nano model fits"));
  EXPECT_EQ(std::ranges::count(told, '\n'), 2);
  const std::string start = "use --budget ";
  const std::string needed = told.substr(told.find(start) + start.size());
  (void)results({"--budget", needed.substr(0, needed.find(' ')), "--ranks", "1,8"});
}

TEST_F(Scale, WritesTheReport) {
  const test::Outcome outcome =
      tessera({"scale", "--ranks", "1,8", "--report", path("scale.html")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string page = test::read_file(path("scale.html"));
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0U);
  EXPECT_NE(page.find(R"("family":"gpt2")"), std::string::npos);
}

TEST_F(Scale, RefusesUnsupportedRequests) {
  refused({"--model", "llama"}, {"\"llama\" does not exist", "llama3-8b"});
  refused({"--model", path("nowhere")}, {"--model " + path("nowhere"), "no such folder"});
  refused({"--model", path("")}, {"--model", "config.json"});
  refused({"--model", ""}, {"\"\" does not exist"});
  refused({"--ranks", "1,0"}, {"--ranks", "'0'", "from 1 to"});
  refused({"--ranks", "4,4"}, {"--ranks", "4 is named twice"});
  refused({"--ranks", "1,,4"}, {"--ranks", "empty entry"});
  refused({"--ranks", "2000000"}, {"--ranks", "from 1 to"});
  refused({"--budget", "much"}, {"--budget", "80GiB"});
  refused({"--budget", "0"}, {"--budget", "nothing fits"});
  refused({"--aspect", "0"}, {"--aspect", "from 1 to"});
  refused({"--batch", "1000000", "--seq", "1000000"}, {"micro-batch"});
  refused({"--layers", "4"}, {"'--layers'", "tessera plan"});
  refused({"--strategies", "zero4"}, {"--strategies", "zero4"});
  refused({"--precision", "fp8"}, {"--precision", "bf16"});
  refused({"--for", "tpu"}, {"--for", "'tpu' is unknown"});
  refused({"--json", "/nowhere/out.json"}, {"--json"});
  refused({"--report", "/nowhere/out.html"}, {"--report"});
  refused({"--measure=false"}, {"measure"});
}

TEST_F(Scale, HelpNamesTheOptions) {
  const std::string help = tessera({"scale", "--help"}).out;
  for (const char* part : {"--ranks", "--budget", "--measure", "--aspect", "1,2,4,8,64,1024"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
}

}  // namespace
}  // namespace tessera::tools::scale_test

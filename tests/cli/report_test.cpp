// --report and --trace: files that hold what was run.
#include <algorithm>
#include <set>
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::report_test {
namespace {

using Report = CommandTest;

/// The document inside a page.
nlohmann::json document_of(const std::string& page) {
  const std::string begin = "id=\"document\">";
  const std::size_t from = page.find(begin);
  EXPECT_NE(from, std::string::npos);
  const std::size_t to = page.find("</script>", from);
  return nlohmann::json::parse(page.substr(from + begin.size(), to - from - begin.size()));
}

TEST_F(Report, OfAComparisonHoldsTheJsonTheCommandAndEveryRanksStep) {
  const Outcome outcome = tessera(small("compare", {"--steps", "4", "--json", path("out.json"),
                                                    "--report", path("it's a report.html")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(read_file(path("out.json")));
  const nlohmann::json document = document_of(read_file(path("it's a report.html")));
  EXPECT_EQ(document.at("kind"), "compare");
  EXPECT_EQ(document.at("strategies"), json.at("strategies"));
  EXPECT_EQ(document.at("model"), json.at("model"));
  const std::string command = document.at("command");
  EXPECT_EQ(command.rfind("tessera compare --data ", 0), 0U) << command;
  EXPECT_NE(command.find("'\\''s a report.html'"), std::string::npos) << command;
  ASSERT_EQ(document.at("timelines").size(), 5U * 3U);
  for (const auto& timeline : document.at("timelines")) {
    EXPECT_EQ(timeline.at("step"), 3);
    std::set<std::string> phases;
    for (const auto& point : timeline.at("points")) { phases.insert(point.at(1)); }
    EXPECT_TRUE(phases.contains("forward") && phases.contains("backward")) << timeline.at("rank");
    EXPECT_FALSE(timeline.at("spans").empty());
  }
}

TEST_F(Report, OfATrainingHasItsStepsAndItsTraceEveryRanksTracks) {
  const Outcome outcome = tessera(small("train", {"--steps", "5", "--strategy", "zero3", "--report",
                                                  path("r.html"), "--trace", path("t.json")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json document = document_of(read_file(path("r.html")));
  EXPECT_EQ(document.at("kind"), "train");
  EXPECT_EQ(document.at("steps").size(), 5U);
  EXPECT_EQ(document.at("timelines").size(), 3U);

  const nlohmann::json trace = nlohmann::json::parse(read_file(path("t.json")));
  const nlohmann::json& events = trace.is_array() ? trace : trace.at("traceEvents");
  std::set<std::pair<int, std::string>> tracks;
  std::set<int> with_memory;
  for (const auto& event : events) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      tracks.emplace(event.at("pid").get<int>(), event.at("args").at("name").get<std::string>());
    }
    if (event.at("ph") == "C") { with_memory.insert(event.at("pid").get<int>()); }
  }
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* name : {"compute", "gather", "reduce"}) {
      EXPECT_TRUE(tracks.contains({rank, name})) << rank << " " << name;
    }
    EXPECT_TRUE(with_memory.contains(rank));
  }
}

TEST_F(Report, OfAPlanHoldsItsJson) {
  const Outcome outcome = tessera({"plan", "--ranks", "64", "--budget", "1GiB", "--json",
                                   path("plan.json"), "--report", path("r.html")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json document = document_of(read_file(path("r.html")));
  EXPECT_EQ(document.at("kind"), "plan");
  EXPECT_EQ(document.at("strategies"),
            nlohmann::json::parse(read_file(path("plan.json"))).at("strategies"));
  EXPECT_TRUE(document.at("timelines").empty());
}

TEST_F(Report, OfASingleStepShowsThatStep) {
  ASSERT_EQ(tessera(small("train", {"--steps", "1", "--report", path("r.html")})).status, 0);
  const nlohmann::json document = document_of(read_file(path("r.html")));
  ASSERT_EQ(document.at("timelines").size(), 3U);
  EXPECT_EQ(document.at("timelines")[0].at("step"), 1);
}

TEST_F(Report, RecordingChangesNoLoss) {
  ASSERT_EQ(tessera(small("train", {"--steps", "4", "--log", path("plain")})).status, 0);
  ASSERT_EQ(tessera(small("train",
                          {"--steps", "4", "--log", path("recorded"), "--trace", path("t.json")}))
                .status,
            0);
  const auto plain = log("plain");
  const auto recorded = log("recorded");
  ASSERT_EQ(plain.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) { EXPECT_EQ(plain[i].at("loss"), recorded[i].at("loss")); }
}

TEST_F(Report, ThatCannotBeWrittenIsRefusedBeforeTheRun) {
  for (const char* option : {"--report", "--trace"}) {
    const Outcome outcome =
        tessera(small("train", {"--steps", "2", option, path("missing/r.html")}));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(option), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(Report, OutputsThatWouldOverwriteEachOtherAreRefused) {
  const auto refused = [&](const std::vector<std::string>& options, const std::string& first,
                           const std::string& second) {
    const Outcome outcome = tessera(small("train", options));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(first + " and " + second + " would both write"), std::string::npos)
        << outcome.err;
    EXPECT_EQ(outcome.out, "");
  };
  refused({"--log", path("a"), "--report", path("a")}, "--log", "--report");
  refused({"--report", path("./a"), "--trace", path("a")}, "--report", "--trace");
  refused({"--checkpoint", path("w"), "--log", path("w/model.safetensors")}, "--log",
          "--checkpoint");
  for (const char* command : {"plan", "scale"}) {
    const Outcome outcome = tessera({command, "--json", path("a"), "--report", path("a")});
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_NE(outcome.err.find("would both write"), std::string::npos) << outcome.err;
  }
  const Outcome nowhere =
      tessera(small("train", {"--steps", "1", "--log", "/dev/null", "--trace", "/dev/null"}));
  EXPECT_EQ(nowhere.status, 0) << nowhere.err;
}

TEST_F(Report, NamesThatAreNotUtf8DoNotEndARun) {
  const std::string data = path("caf\xE9.txt");
  write_file(data, text(20'000));
  const Outcome trained = tessera({"train",
                                   "--data",
                                   data,
                                   "--layers",
                                   "1",
                                   "--hidden",
                                   "16",
                                   "--heads",
                                   "2",
                                   "--seq",
                                   "16",
                                   "--ranks",
                                   "2",
                                   "--batch",
                                   "1",
                                   "--steps",
                                   "2",
                                   "--report",
                                   path("r.html"),
                                   "--trace",
                                   path("t\xE9.json")});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string command = document_of(read_file(path("r.html"))).at("command");
  EXPECT_NE(command.find("caf\xEF\xBF\xBD.txt"), std::string::npos) << command;
  EXPECT_GT(read_file(path("t\xE9.json")).size(), 1000U);
  const Outcome planned = tessera({"plan", "--report", path("p\xE9.html"), "--json", path("p")});
  EXPECT_EQ(planned.status, 0) << planned.err;
}

TEST_F(Report, WithoutStepsIsRefused) {
  const Outcome outcome = tessera(small("train", {"--steps", "0", "--trace", path("t")}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("have no effect with --steps 0"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tessera::test::report_test

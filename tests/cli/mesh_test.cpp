// --mesh with pipe and tensor, run as a user runs it.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "cli/command.hpp"

namespace tessera::test::mesh_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
using ::testing::HasSubstr;

class MeshCommand : public CommandTest {
 protected:
  /// gpt-nano on `ranks` ranks, `data_ranks` of them with different data; 16 samples per step.
  [[nodiscard]] Words nano(const std::string& command, int ranks, int data_ranks,
                           const Words& more) const {
    Words all = {command, "--ranks", std::to_string(ranks),         "--seq", "32", "--accumulate",
                 "4",     "--batch", std::to_string(4 / data_ranks)};
    if (command != "plan") { all.insert(all.end(), {"--data", path("text.txt")}); }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Outcome done(const Words& arguments) const {
    Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  }
  [[nodiscard]] Json json_of(Words arguments) const {
    arguments.insert(arguments.end(), {"--json", path("out.json")});
    out_ = done(arguments).out;
    return Json::parse(read_file(path("out.json")));
  }
  void refused(const Words& arguments, const std::string& part) const {
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }

  mutable std::string out_;
};

/// Bounds between runs that add in different orders.
const GPTBounds kWithin = between_runs(
    {.layers = 4, .hidden = 128, .heads = 4, .vocab = 256, .seq = 32}, std::int64_t{16} * 32);

double loss_of(const Json& line) {
  return line.at("loss").get<double>();
}

void expect_near(const std::vector<Json>& lines, const std::vector<Json>& whole) {
  ASSERT_EQ(lines.size(), whole.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NEAR(loss_of(lines[i]), loss_of(whole[i]), kWithin.later_loss * loss_of(whole[0]));
    EXPECT_EQ(lines[i].at("step"), whole[i].at("step"));
  }
}

TEST_F(MeshCommand, TrainsAsOneRankDoes) {
  const Words logged = {"--steps", "2",           "--eval-data",    path("text.txt"),
                        "--log",   path("a.log"), "--eval-batches", "1"};
  (void)done(nano("train", 1, 1, logged));
  const std::vector<Json> whole = log("a.log");
  const struct {
    int ranks;
    int data_ranks;
    Words words;
    const char* title;
  } meshes[] = {
      {4, 1, {"--mesh", "pipe=2,tensor=2"}, "ddp on mesh pipe 2 x tensor 2, schedule 1f1b on 4"},
      {4,
       2,
       {"--mesh", "pipe=2,shard=2", "--strategy", "zero3", "--schedule", "interleaved"},
       "zero3 on mesh pipe 2 x shard 2, schedule interleaved of 2 stages a rank on 4 ranks"},
      {2,
       1,
       {"--mesh", "tensor=2", "--sequence-parallel", "--tensor-slices", "2"},
       "ddp on mesh tensor 2, sequence parallel, 2 slices a product on 2 ranks"},
  };
  for (const auto& [ranks, data_ranks, words, title] : meshes) {
    SCOPED_TRACE(title);
    Words all = logged;
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_THAT(done(nano("train", ranks, data_ranks, all)).out, HasSubstr(title));
    expect_near(log("a.log"), whole);
    for (const Json& line : log("a.log")) {
      EXPECT_EQ(line.at("peak_bytes"), line.at("planned_peak_bytes"));
      // bound: a quotient in fp64, of a value below 1e6
      EXPECT_NEAR(line.at("tokens_per_second").get<double>(),
                  16 * 32 / line.at("seconds").get<double>(), 1e-3);
    }
    EXPECT_NEAR(log("a.log").back().at("eval_loss").get<double>(),
                whole.back().at("eval_loss").get<double>(), kWithin.later_loss * loss_of(whole[0]));
  }
}

TEST_F(MeshCommand, ComparesStrategiesThatHoldWhatWasPlanned) {
  const Json json = json_of(
      nano("compare", 8, 2,
           {"--steps", "2", "--mesh", "pipe=2,shard=2,tensor=2", "--report", path("report.html")}));
  ASSERT_EQ(json.at("strategies").size(), 3U) << "dp and ddp shard nothing";
  for (const Json& strategy : json.at("strategies")) {
    EXPECT_EQ(strategy.at("losses"), json.at("strategies")[0].at("losses"));
    const Json& ranks = strategy.at("ranks");
    ASSERT_EQ(ranks.size(), 8U);
    EXPECT_EQ(ranks[6].at("place"), (Json{{"pipe", 1}, {"shard", 1}, {"tensor", 0}}));
    for (const Json& rank : ranks) {
      EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("peak_bytes"));
    }
    EXPECT_NE(ranks[0].at("peak_bytes"), ranks[4].at("peak_bytes")) << "other layers";
  }
  EXPECT_EQ(json.at("pipeline").at("in_flight"), (Json{2, 1}));
  // bound: a quotient in fp64
  EXPECT_NEAR(json.at("pipeline").at("bubble").get<double>(), 0.2, 1e-9);
  const std::string page = read_file(path("report.html"));
  EXPECT_THAT(page, HasSubstr("\"recorded\":[{\"strategy\":\"zero1\",\"step\":2,"));
}

// Divided backward passes open their units twice.
TEST_F(MeshCommand, DrawsTheRecordedTimesOfASchedule) {
  for (const char* const schedule : {"interleaved", "zero-bubble"}) {
    (void)done(nano("train", 2, 1,
                    {"--steps", "2", "--mesh", "pipe=2", "--schedule", schedule, "--report",
                     path("report.html")}));
    const std::string page = read_file(path("report.html"));
    const std::size_t begin = page.find("\"recorded\":[{\"strategy\":\"ddp\",\"step\":2,");
    ASSERT_NE(begin, std::string::npos) << schedule;
    const Json recorded = Json::parse(page.substr(begin + 12, page.find("}]", begin) - begin - 11));
    std::map<std::string, int> works;
    for (const Json& place : recorded.at("ranks")) {
      double end = 0.0;
      for (const Json& span : place) {
        EXPECT_GE(span[0].get<double>(), end) << "one action at a time";
        end = span[1].get<double>();
        ++works[span[2].get<std::string>()];
      }
    }
    EXPECT_EQ(works, schedule == std::string{"zero-bubble"}
                         ? (std::map<std::string, int>{
                               {"forward", 8}, {"backward_input", 8}, {"backward_weight", 8}})
                         : (std::map<std::string, int>{{"forward", 16}, {"backward", 16}}));
  }
}

TEST_F(MeshCommand, PlansAThousandRanksByTheirPlaces) {
  const Words sizes = {"--layers",     "80",    "--hidden",    "8192", "--heads", "64",
                       "--vocab",      "32000", "--seq",       "4096", "--batch", "1",
                       "--accumulate", "64",    "--precision", "bf16"};
  Words all = {"plan",       "--ranks", "1024",   "--mesh",        "pipe=8,shard=16,tensor=8",
               "--strategy", "zero1",   "--json", path("out.json")};
  all.insert(all.end(), sizes.begin(), sizes.end());
  const Outcome outcome = done(all);
  EXPECT_LT(outcome.processor_seconds, TESSERA_SANITIZED ? 60 : 10);
  EXPECT_THAT(outcome.out, HasSubstr("zero1     pipe 0  "));
  EXPECT_THAT(outcome.out, HasSubstr("(8 stages, schedule 1f1b: idle for 9.9 % of a step"));
  const Json kinds = Json::parse(read_file(path("out.json"))).at("strategies")[0].at("ranks");
  int ranks = 0;
  for (std::size_t place = 0; place < kinds.size(); ++place) {
    EXPECT_EQ(kinds[place].at("places").at("pipe"), (Json{place, place}));
    EXPECT_EQ(kinds[place].at("places").at("tensor"), (Json{0, 7}));
    ranks += kinds[place].at("count").get<int>();
  }
  EXPECT_EQ(kinds.size(), 8U) << "of eight stages each keeps other micro-batches";
  EXPECT_EQ(ranks, 1024);
}

TEST_F(MeshCommand, PlansPartsOfDifferentSizesSeparately) {
  const Json json = json_of({"plan", "--ranks", "2", "--mesh", "tensor=2", "--strategy", "ddp",
                             "--layers", "1", "--hidden", "60", "--heads", "3"});
  const Json& kinds = json.at("strategies")[0].at("ranks");
  ASSERT_EQ(kinds.size(), 2U) << "one head, and two";
  EXPECT_LT(kinds[0].at("peak_bytes"), kinds[1].at("peak_bytes"));
  EXPECT_THAT(out_, HasSubstr("ddp       tensor 0"));
  const Json stack = json_of({"plan", "--params", "1e9", "--ranks", "8", "--mesh",
                              "pipe=2,shard=2,tensor=2", "--strategies", "zero3"});
  std::size_t bytes = 0;
  for (const Json& part : stack.at("strategies")[0].at("ranks")[0].at("model_state_bytes")) {
    bytes += part.get<std::size_t>();
  }
  EXPECT_NEAR(static_cast<double>(bytes), 2e9, 1e6) << "16 bytes of an eighth";
}

TEST_F(MeshCommand, ASearchSplitsTheModelIfShardingAloneDoesNotFit) {
  const Words asked = {"plan",  "--ranks", "4",       "--layers", "2",       "--hidden", "64",
                       "--seq", "512",     "--batch", "1",        "--vocab", "256"};
  const auto with = [&](const Words& more) {
    Words all = asked;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  // A megabyte less than zero3 needs with everything recomputed.
  const auto budget_for = [&](const char* device) {
    const Json least = json_of(with({"--strategy", "zero3", "--recompute", "block", "--head-rows",
                                     "64", "--prefetch", "0", "--for", device}));
    const Json& rank = least.at("strategies")[0].at("ranks")[0];
    return std::to_string(rank.at("peak_bytes").get<std::size_t>() - 1'000'000);
  };
  const std::string budget = budget_for("cpu");
  const Json found = json_of(with({"--budget", budget}));
  EXPECT_THAT(found.at("search").at("command").get<std::string>(),
              HasSubstr("--mesh shard=2,tensor=2"));
  EXPECT_EQ(found.at("mesh"), (Json{{"shard", 2}, {"tensor", 2}}));
  EXPECT_EQ(found.at("search").at("meshes").size(), 1U);
  EXPECT_THAT(out_, HasSubstr("adds up every layer's output over 2 ranks"));
  EXPECT_THAT(out_,
              HasSubstr("(of meshes the one with the fewest parts: shard first, then tensor"));
  EXPECT_EQ(tessera(with({"--budget", budget, "--mesh", "shard=4", "--offload", "none"})).status, 3)
      << "what was typed stays";

  const Json machine = {
      {"tessera_machine", 1},
      {"name", "two devices a node"},
      {"flops_per_second", {{"fp32", 1e13}}},
      {"bytes_per_second", 1e12},
      {"collectives", "ring"},
      {"protocols", {{{"name", "simple"}, {"start_seconds", 1e-5}}}},
      {"levels",
       {{{"name", "node"}, {"ranks", 2}, {"bytes_per_second", 1e11}, {"step_seconds", {3e-6}}},
        {{"name", "cluster"}, {"bytes_per_second", 1e10}, {"step_seconds", {1e-5}}}}}};
  write_file(path("machine.json"), machine.dump());
  const Json timed = json_of(
      with({"--budget", budget_for("cuda"), "--for", "cuda", "--time", path("machine.json")}));
  double fastest = INFINITY;
  for (const Json& mesh : timed.at("search").at("meshes")) {
    EXPECT_EQ(mesh.at("mesh").get<std::string>().find("tensor=4"), std::string::npos);
    fastest = std::min(fastest, mesh.at("seconds_per_step").get<double>());
  }
  EXPECT_GT(timed.at("search").at("meshes").size(), 1U);
  EXPECT_EQ(timed.at("strategies")[0].at("seconds_per_step"), fastest);
  EXPECT_THAT(out_, HasSubstr("meshes that fit"));
}

TEST_F(MeshCommand, ResumesOnAnotherMeshAndSaysSo) {
  const auto steps = [&](const char* count, int ranks, int data_ranks, const Words& more) {
    Words all = {"--steps", count, "--checkpoint", path("a"), "--lr-schedule", "constant"};
    all.insert(all.end(), more.begin(), more.end());
    return done(nano("train", ranks, data_ranks, all));
  };
  (void)steps("1", 2, 1, {"--mesh", "pipe=2"});
  const Outcome other =
      steps("2", 4, 2, {"--mesh", "shard=2,tensor=2", "--strategy", "zero3", "--resume"});
  EXPECT_EQ(other.err, "note: --mesh shard=2,tensor=2 from now on, --mesh pipe=2 before\n");
  EXPECT_EQ(steps("3", 1, 1, {"--resume", "--log", path("b.log")}).err,
            "note: no --mesh from now on, --mesh shard=2,tensor=2 before\n");
  (void)done(
      nano("train", 1, 1, {"--steps", "3", "--lr-schedule", "constant", "--log", path("c.log")}));
  const double expected = loss_of(log("c.log").back());
  EXPECT_NEAR(loss_of(log("b.log").back()), expected, kWithin.later_loss * expected);
}

TEST_F(MeshCommand, ScalesOverTheDimensionsThatAMeshLeavesOpen) {
  const Json json =
      json_of({"scale", "--model", "gpt-nano", "--ranks", "4,8", "--mesh", "pipe=2,tensor=2",
               "--budget", "16MiB", "--strategies", "ddp,zero3", "--measure"});
  const Json& strategies = json.at("strategies");
  EXPECT_EQ(strategies[0].at("largest")[1].at("mesh"),
            (Json{{"pipe", 2}, {"replicate", 2}, {"tensor", 2}}));
  EXPECT_EQ(strategies[1].at("largest")[1].at("mesh"),
            (Json{{"pipe", 2}, {"shard", 2}, {"tensor", 2}}));
  EXPECT_GE(strategies[0].at("largest")[0].at("layers"), 2) << "a layer for each stage";
  EXPECT_THAT(out_, HasSubstr("as planned on every rank, to the byte"));
  const Json by_default = json_of({"scale", "--model", "gpt-nano", "--mesh", "pipe=3", "--budget",
                                   "16MiB", "--strategies", "ddp"});
  EXPECT_EQ(by_default.at("ranks"), (Json{3, 6, 9, 66, 1026}));
  EXPECT_THAT(out_, HasSubstr("4 samples a data rank and micro-batch"));
  refused({"scale", "--mesh", "pipe=4", "--ranks", "6", "--strategies", "ddp"},
          "6 ranks are not a multiple of its 4");
}

TEST_F(MeshCommand, TimesTheStagesOfAPipeline) {
  const Json machine = {
      {"tessera_machine", 1},
      {"name", "quick links"},
      {"flops_per_second", {{"fp32", 1e12}}},
      {"bytes_per_second", 1e15},
      {"collectives", "ring"},
      {"protocols", {{{"name", "simple"}, {"start_seconds", 0}}}},
      {"levels", {{{"name", "node"}, {"bytes_per_second", 1e14}, {"step_seconds", {0}}}}}};
  write_file(path("machine.json"), machine.dump());
  const auto bubble = [&](const char* accumulate) {
    const Json json = json_of({"plan",    "--ranks",      "4",
                               "--mesh",  "pipe=4",       "--batch",
                               "1",       "--accumulate", accumulate,
                               "--for",   "cuda",         "--layers",
                               "8",       "--hidden",     "256",
                               "--vocab", "64",           "--strategy",
                               "ddp",     "--time",       path("machine.json")});
    EXPECT_EQ(json.at("strategies")[0].at("time").at("pipe").size(), 4U);
    EXPECT_THAT(out_, HasSubstr("(ddp: waiting by place along pipe "));
    return json.at("strategies")[0].at("time").at("bubble").get<double>();
  };
  // bound: embedding and head make the first and the last stage longer than the formula assumes
  EXPECT_NEAR(bubble("4"), 3.0 / 7, 0.05);
  // bound: as above
  EXPECT_NEAR(bubble("16"), 3.0 / 19, 0.04);
}

TEST_F(MeshCommand, RefusesUselessAndImpossibleOptions) {
  const struct {
    Words words;
    const char* text;
  } refusals[] = {
      {{"--schedule", "gpipe"}, "--schedule has no effect, because --mesh has one rank"},
      {{"--mesh", "tensor=4", "--schedule", "gpipe"}, "along pipe; leave it out"},
      {{"--mesh", "pipe=4", "--sequence-parallel"}, "--sequence-parallel has no effect"},
      {{"--mesh", "pipe=4", "--tensor-slices", "2"}, "one rank along tensor"},
      {{"--mesh", "pipe=4", "--chunks", "2"}, "--chunks has no effect on --schedule 1f1b"},
      {{"--mesh", "pipe=4", "--schedule", "interleaved", "--chunks", "1"}, "from 2 to"},
      {{"--mesh", "pipe=4", "--schedule", "eager"}, "use gpipe, 1f1b, interleaved or zero-bubble"},
      {{"--mesh", "pipe=4", "--schedule", "interleaved", "--accumulate", "6"},
       "6 micro-batches on 4 ranks; give a multiple"},
      {{"--mesh", "pipe=4", "--layers", "3"}, "3 layers"},
      {{"--mesh", "pipe=4", "--offload", "activations"},
       "--offload activations cannot be combined"},
      {{"--mesh", "pipe=2,tensor=2", "--strategy", "dp"}, "under dp rank 0 keeps the whole model"},
      {{"--mesh", "pipe=2,shard=2"}, "ddp shards nothing"},
      {{"--mesh", "pipe=2,tensor=4"}, "8 ranks"},
  };
  for (const auto& [words, text] : refusals) {
    for (const char* const command : {"train", "plan"}) {
      Words all = {command, "--ranks", "4"};
      if (command == std::string{"train"}) {
        all.insert(all.end(), {"--data", path("text.txt")});
      } else if (!testing::Value(words, testing::Contains("--strategy"))) {
        all.insert(all.end(), {"--strategy", "ddp"});
      }
      all.insert(all.end(), words.begin(), words.end());
      refused(all, text);
    }
  }
  refused({"plan", "--params", "1e9", "--ranks", "2", "--mesh", "pipe=2", "--seq", "8", "--time",
           path("no.json")},
          "no.json");
}

}  // namespace
}  // namespace tessera::test::mesh_test

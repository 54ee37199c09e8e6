// tessera bench: what it measures, its JSON, and what it refuses.
#include <cmath>
#include <set>

#include "cli/command.hpp"
#include "support/rounding.hpp"
#include "tessera/base/error.hpp"
#include "tools/bench/bench_options.hpp"
#include "tools/common/machine.hpp"

namespace tessera::test::bench_test {
namespace {

class BenchCommand : public CommandTest {
 protected:
  nlohmann::json results(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--repeat", "2", "--json", path("out.json")});
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(read_file(path("out.json")));
  }
  void refused(const std::vector<std::string>& arguments, const std::string& part) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
};

TEST_F(BenchCommand, AdamWCountsBytesAndFlopsByFormula) {
  const nlohmann::json json = results({"adamw", "--parameters", "1000"});
  EXPECT_EQ(json["bytes"], 28'000.0);
  EXPECT_EQ(json["flops"], 16'000.0);
  EXPECT_EQ(json["seconds"]["all"].size(), 2U);
  EXPECT_GE(json["limits"].size(), 3U);
  EXPECT_EQ(json["int8_moments"]["bytes"], 16'062.5);
  EXPECT_GT(json["int8_moments"]["time_of_fp32_moments"], 0.0);
  for (const auto& limit : json["limits"]) {
    const double rate = limit["bytes"].get<double>() / limit["seconds"]["median"].get<double>();
    EXPECT_DOUBLE_EQ(limit["bytes_per_second"].get<double>(), rate);
    EXPECT_GT(limit["ratio"], 0.0);
  }
  const nlohmann::json& remainders = json["remainders"];
  EXPECT_EQ(remainders["bytes"], 28'000.0);
  EXPECT_EQ(remainders["limits"][0]["name"], "fp32 masters");
  EXPECT_EQ(remainders["limits"][0]["bytes"], 30'000.0);
}

TEST_F(BenchCommand, OffloadCountsAdamWsWorkBesideThePlainLoop) {
  const nlohmann::json json = results({"offload", "--parameters", "1000"});
  EXPECT_EQ(json["bench"], "offload");
  EXPECT_EQ(json["bytes"], 28'000.0);
  EXPECT_EQ(json["name"], "on the host stream");
  std::set<std::string> limits;
  for (const auto& limit : json["limits"]) { limits.insert(limit["name"].get<std::string>()); }
  EXPECT_TRUE(limits.contains("the kernel alone"));
  EXPECT_GE(limits.size(), 2U);
}

// 51,648 parameters, their two moments, and headers.
TEST_F(BenchCommand, CheckpointCountsTheBytesOfTheFolder) {
  const nlohmann::json json =
      results({"checkpoint", "--folder", path("saved"), "--layers", "1", "--hidden", "64",
               "--heads", "1", "--vocab", "16", "--seq", "8", "--batch", "1"});
  const double state = 12.0 * (50'112 + 16 * 64 + 8 * 64);
  EXPECT_GT(json["bytes"], state);
  EXPECT_LT(json["bytes"], state + 50'000);
  for (const char* const what : {"save", "load"}) {
    EXPECT_EQ(json[what]["bytes"], json["bytes"].get<double>()) << what;
    EXPECT_EQ(json[what]["limits"][0]["bytes"], json["bytes"].get<double>()) << what;
  }
  EXPECT_EQ(json["asynchronous"]["bytes"].get<double>(), state);
  EXPECT_EQ(json["asynchronous"]["saving"]["all"].size(), 2U);
}

TEST_F(BenchCommand, CheckpointRemovesTheFoldersThatItMade) {
  const std::vector<std::string> sizes = {"--layers", "1", "--hidden", "8", "--heads", "1"};
  const auto checkpoint = [&](const std::string& before, const std::string& folder) {
    std::vector<std::string> arguments = {"bench", "checkpoint", "--repeat",
                                          "2",     "--folder",   path(folder)};
    arguments.insert(arguments.end(), sizes.begin(), sizes.end());
    return shell(before + "exec \"$0\" \"$@\"", arguments);
  };
  EXPECT_EQ(checkpoint("", "new/inner").status, 0);
  EXPECT_FALSE(std::filesystem::exists(path("new")));
  const Outcome full = checkpoint("trap '' XFSZ; ulimit -f 8; ", "new/inner");
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("cannot"), std::string::npos) << full.err;
  EXPECT_FALSE(std::filesystem::exists(path("new")));
  std::filesystem::create_directory(path("kept"));
  EXPECT_EQ(checkpoint("", "kept").status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(path("kept")));
  const Outcome refused = checkpoint("", "text.txt");
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.err.find("error: --folder: cannot make the folder " + path("text.txt")), 0U)
      << refused.err;
}

TEST_F(BenchCommand, ProductsCoverAStepInEveryDtype) {
  const nlohmann::json json =
      results({"products", "--hidden", "8", "--vocab", "24", "--seq", "4", "--batch", "2"});
  const nlohmann::json& products = json["products"];
  ASSERT_EQ(products.size(), 3U * 5U * 3U);
  std::set<std::string> ways;
  for (const auto& product : products) {
    const double flops =
        2.0 * product["m"].get<double>() * product["n"].get<double>() * product["k"].get<double>();
    EXPECT_EQ(product["flops"].get<double>(), flops);
    EXPECT_EQ(product["seconds"]["all"].size(), 2U);
    ways.insert(product["name"].get<std::string>());
  }
  // Products this small do not use oneDNN.
  EXPECT_EQ(ways, (std::set<std::string>{"Eigen", "conversion"}));
  EXPECT_EQ(products[0]["part"], "c_attn forward");
  EXPECT_EQ(products[0]["n"], 24);
  EXPECT_EQ(products[44]["part"], "wte dW");
  EXPECT_EQ(products[44]["dtypes"], "fp16 fp16 fp32");
}

TEST_F(BenchCommand, CollectivesCountWhatAllRanksReadAndWrite) {
  const nlohmann::json json = results({"collectives", "--bytes", "48000", "--ranks", "3"});
  ASSERT_EQ(json["collectives"].size(), 3U);
  EXPECT_EQ(json["collectives"][0]["name"], "all_gather");
  EXPECT_EQ(json["collectives"][0]["bytes"], 3 * 2 * 48'000.0);
  EXPECT_EQ(json["collectives"][1]["bytes"], 3 * (48'000.0 + 16'000));
  EXPECT_EQ(json["collectives"][2]["bytes"], 3 * (48'000.0 + 16'000 + 2 * 32'000));
}

TEST_F(BenchCommand, SharesOfAStepAddUpAndScale) {
  const nlohmann::json json =
      results({"step", "--layers", "1", "--hidden", "16", "--heads", "2", "--vocab", "32", "--seq",
               "8", "--batch", "4", "--strategies", "ddp,zero3", "--scaling"});
  // 3 * 4 * 8 * (24 * 16^2 + 4 * 8 * 16 + 2 * 16 * 32); products lack attention's 4 * 8 * 16.
  EXPECT_EQ(json["flops"], 737'280.0);
  EXPECT_EQ(json["products"]["flops"], 688'128.0);
  ASSERT_EQ(json["strategies"].size(), 2U);
  for (const auto& strategy : json["strategies"]) {
    const auto& shares = strategy["shares"];
    EXPECT_GT(shares["forward"], 0.0);
    EXPECT_GT(shares["backward"], 0.0);
    EXPECT_GT(shares["update"], 0.0);
    EXPECT_GT(shares["waiting"], 0.0);
  }
  ASSERT_EQ(json["scaling"].size(), 4U);
  EXPECT_EQ(json["scaling"][1]["ranks"], 2);
  for (const auto& point : json["scaling"]) {
    ASSERT_EQ(point["strategies"].size(), 2U);
    EXPECT_EQ(point["strategies"][1]["seconds"]["all"].size(), 3U) << "fewer rounds show nothing";
    EXPECT_EQ(point["strategies"][1]["cpu_seconds"]["all"].size(), 3U);
  }
  EXPECT_EQ(json["scaling"][1]["strategies"][0]["against_two"], 1.0);
  EXPECT_EQ(json["scaling"][1]["strategies"][0]["cpu_against_two"], 1.0);
}

TEST_F(BenchCommand, AStepIsTimedInSixteenBits) {
  const std::vector<std::string> arguments = {
      "step", "--layers", "1", "--hidden", "16", "--heads",      "2",   "--vocab",
      "32",   "--seq",    "8", "--batch",  "1",  "--strategies", "ddp", "--precision"};
  const auto with = [&](const std::string& precision) {
    std::vector<std::string> all = arguments;
    all.push_back(precision);
    return results(all);
  };
  const nlohmann::json fp32 = with("fp32"), bf16 = with("bf16");
  EXPECT_EQ(bf16["precision"], "bf16");
  // 12 * 16^2 + 13 * 16 of the block, (32 + 8) * 16 of the tables, 2 * 16 of the last norm.
  EXPECT_EQ(bf16["parameters"], 3'952);
  EXPECT_EQ(bf16["flops"], fp32["flops"]);
  const double loss = bf16["strategies"][0]["loss"];
  EXPECT_NE(loss, fp32["strategies"][0]["loss"].get<double>()) << "rounded to 16 bits";
  // Logits are rounded to bf16, and some 8 values before them in sequence; they are below 1/2.
  EXPECT_NEAR(loss, fp32["strategies"][0]["loss"].get<double>(),
              test::roundings(9, 0.5, DType::bf16));
  // bound: a new model gives every token about 1 / 32; logits of 0.08 root mean square add 0.003
  EXPECT_NEAR(loss, std::log(32.0), 0.1);
}

TEST_F(BenchCommand, AStepIsTimedWithAndWithoutRecords) {
  const nlohmann::json json =
      results({"step", "--layers", "1", "--hidden", "16", "--heads", "2", "--vocab", "32", "--seq",
               "8", "--batch", "1", "--strategies", "ddp,zero3", "--recording"});
  ASSERT_EQ(json["recording"].size(), 2U);
  for (const auto& cost : json["recording"]) {
    EXPECT_EQ(cost["seconds_off"]["all"].size(), 2U);
    EXPECT_EQ(cost["seconds_on"]["all"].size(), 2U);
    EXPECT_GT(cost["cpu_seconds_off"]["median"], 0.0);
    EXPECT_GT(cost["cpu_seconds_on"]["median"], 0.0);
    // At least a forward and a backward of two units, the update, and a collective.
    EXPECT_GE(cost["records"], 11U);
    EXPECT_LT(cost["records"], 100U);
  }
  EXPECT_GT(json["recording"][1]["records"], json["recording"][0]["records"]) << "gathers";
}

TEST_F(BenchCommand, AStepIsTimedWithEachFeature) {
  const nlohmann::json json =
      results({"step", "--layers", "1", "--hidden", "16", "--heads", "2", "--vocab", "32", "--seq",
               "8", "--batch", "1", "--strategies", "ddp,zero3", "--features"});
  ASSERT_EQ(json["features"].size(), 2U);
  for (const auto& cost : json["features"]) {
    const auto& features = cost["features"];
    ASSERT_EQ(features.size(), 9U);
    for (const auto& feature : features) {
      EXPECT_EQ(feature["seconds"]["all"].size(), 2U) << feature["name"];
      EXPECT_GT(feature["seconds_ratio"], 0.0) << feature["name"];
    }
    EXPECT_EQ(features[0]["name"], "plain fp32");
    EXPECT_EQ(features[3]["name"], "bf16 on the wire");
    EXPECT_EQ(features[6]["name"], "checks off (again)");
    EXPECT_EQ(features[8]["name"], "checks memory");
    const auto plain = features[0]["reduced_bytes"].get<std::size_t>();
    EXPECT_GT(plain, 0U) << cost["name"];
    EXPECT_EQ(2 * features[3]["reduced_bytes"].get<std::size_t>(), plain) << cost["name"];
  }
}

TEST_F(BenchCommand, RefusesUnknownNames) {
  refused({"bench"}, "adamw, offload, checkpoint, collectives, machine, products or step");
  refused({"bench", "adamv"}, "did you mean adamw?");
  refused({"bench", "adamw", "--ranks", "2"}, "'--ranks'");
  refused({"bench", "step", "--repaet", "2"}, "did you mean --repeat?");
  refused({"bench", "adamw", "--parameters", "many"}, "--parameters: 'many'");
  refused({"bench", "collectives", "--bytes", "4", "--ranks", "2"}, "--bytes");
  refused({"bench", "step", "--heads", "3"}, "heads");
  refused({"bench", "step", "--scaling", "--batch", "6"}, "multiple of 4");
  refused({"bench", "step", "--scaling=false"}, "scaling");
  refused({"bench", "step", "--strategies", "zero9"}, "--strategies");
  refused({"bench", "step", "--precision", "fp64"}, "use fp32, bf16, fp16");
  refused({"bench", "step", "--precision", "bf16", "--features"}, "leave out --precision");
  refused({"bench", "step", "--strategies", "ddp", "--prefetch", "2"}, "--prefetch");
  refused({"bench", "machine", "--from", "old.json", "--widest", "64"},
          "--widest has no effect with --from");
  refused({"bench", "adamw", "--json", "/nowhere/out.json"}, "--json");
}

// If a model's state fills half the memory on two ranks, neither eight ranks nor six copies fit.
TEST(BenchOptions, ScalingAndFeaturesMustFitIntoMemory) {
  constexpr std::size_t layer = 12UL * 1024 * 1024;  // parameters
  const std::size_t layers = tools::usable_memory() / (2 * 2 * 16 * layer);
  const std::string count = std::to_string(layers);
  const std::vector<const char*> fits = {"step",        "--strategies", "ddp",  "--layers",
                                         count.c_str(), "--hidden",     "1024", "--batch",
                                         "4",           "--seq",        "1"};
  EXPECT_NO_THROW((void)tools::parse_bench(fits));
  for (const char* more : {"--scaling", "--features"}) {
    std::vector<const char*> arguments = fits;
    arguments.push_back(more);
    EXPECT_THROW((void)tools::parse_bench(arguments), OutOfMemory) << more;
  }
}

TEST_F(BenchCommand, HelpNamesTheOptions) {
  EXPECT_NE(tessera({"bench", "--help"}).out.find("collectives"), std::string::npos);
  EXPECT_NE(tessera({"bench", "step", "--help"}).out.find("--scaling"), std::string::npos);
}

}  // namespace
}  // namespace tessera::test::bench_test

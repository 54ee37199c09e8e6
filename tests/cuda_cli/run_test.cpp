// train, compare, sample, plan and scale with --device cuda.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cuda_cli/cuda_command.hpp"
#include "world/host_cores.hpp"

namespace tessera::test::run_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using CudaRun = CudaCommand;

TEST_F(CudaRun, LossesAreTheCpusUnderEveryStrategyAndMemoryIsAsPlanned) {
  for (const char* ranks : {"1", "2", "4"}) {
    SCOPED_TRACE(ranks);
    const Json cpu = compared(ranks, {"--steps", "4", "--strategies", "ddp"});
    const Json cuda = compared(ranks, {"--steps", "4", "--device", "cuda"});
    EXPECT_EQ(cuda.at("device"), "cuda");
    EXPECT_EQ(cuda.at("comm"), "local");
    ASSERT_EQ(cuda.at("strategies").size(), 5U);
    const auto base = cpu.at("strategies")[0].at("losses").get<std::vector<double>>();
    for (const Json& strategy : cuda.at("strategies")) {
      SCOPED_TRACE(strategy.at("name"));
      const auto losses = strategy.at("losses").get<std::vector<double>>();
      ASSERT_EQ(losses.size(), base.size());
      for (std::size_t i = 0; i < base.size(); ++i) {
        EXPECT_NEAR(losses[i], base[i], small_bounds().later_loss * base[0]) << "step " << i + 1;
      }
      EXPECT_EQ(strategy.at("losses"), cuda.at("strategies")[0].at("losses"));
      for (const Json& rank : strategy.at("ranks")) {
        EXPECT_EQ(rank.at("peak_bytes"), rank.at("planned_peak_bytes")) << rank.at("rank");
        EXPECT_GE(rank.at("at_peak").at("workspace"), 32 << 20);
      }
    }
  }
}

TEST_F(CudaRun, EveryPrecisionAndFeatureHoldsWhatIsPlanned) {
  const std::vector<Words> variants = {
      {"--precision", "bf16", "--reduce-dtype", "bf16"},
      {"--precision", "fp16", "--gradient-dtype", "fp16", "--accumulate", "3", "--offload",
       "state"},
      {"--recompute", "gelu,layer-norm", "--head-rows", "24"},
      {"--recompute", "block", "--dropout", "0.1", "--offload", "activations"}};
  for (Words variant : variants) {
    SCOPED_TRACE(testing::PrintToString(variant));
    variant.insert(variant.end(), {"--device", "cuda", "--steps", "2"});
    const Json json = compared("2", variant);
    for (const Json& strategy : json.at("strategies")) {
      for (const Json& rank : strategy.at("ranks")) {
        EXPECT_EQ(rank.at("peak_bytes"), rank.at("planned_peak_bytes"));
        if (!rank.contains("host_peak_bytes")) { continue; }
        EXPECT_EQ(rank.at("host_peak_bytes"), rank.at("planned_host_peak_bytes"));
      }
    }
  }
}

TEST_F(CudaRun, PrintsTheHostThreadsOfItsUpdates) {
  const auto cores = static_cast<int>(world::own_cores().cores.size());
  for (const int asked : {0, 3}) {
    Words more = {"--device", "cuda", "--steps", "2", "--offload", "optimizer"};
    if (asked > 0) { more.insert(more.end(), {"--host-threads", std::to_string(asked)}); }
    Words strategy = more;
    strategy.insert(strategy.end(), {"--strategies", "zero3"});
    const Json json = compared("2", strategy);
    for (const Json& rank : json.at("strategies")[0].at("ranks")) {
      EXPECT_EQ(rank.at("host_threads"), asked > 0 ? asked : std::max(1, cores / 2));
    }
    if (asked == 0) { continue; }
    Words words = on_ranks("1", "train", more);
    const Outcome outcome = tessera(words);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("optimizer updated on the host, by 3 threads a rank\n"));
  }
}

TEST_F(CudaRun, APlanForCudaIsWhatItsRunsHold) {
  const Words model = {"--layers", "2",  "--hidden", "20", "--heads", "2",
                       "--seq",    "16", "--batch",  "2",  "--ranks", "3"};
  Words words = {"plan", "--for", "cuda", "--json", path("plan.json")};
  words.insert(words.end(), model.begin(), model.end());
  const Outcome outcome = tessera(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json plan = Json::parse(read_file(path("plan.json")));
  const Json run = compared("3", {"--steps", "2", "--device", "cuda"});
  for (std::size_t s = 0; s < 5; ++s) {
    const Json& planned = plan.at("strategies")[s].at("ranks");
    EXPECT_EQ(planned[0].at("planned_peak_bytes"),
              run.at("strategies")[s].at("ranks")[0].at("peak_bytes"));
    EXPECT_EQ(planned[0].at("at_peak"), run.at("strategies")[s].at("ranks")[0].at("at_peak"));
  }
}

TEST_F(CudaRun, AGraphChangesNoBit) {
  for (const Words& more : std::vector<Words>{{"--strategy", "zero3"},
                                              {"--precision", "bf16", "--accumulate", "2"},
                                              {"--precision", "fp16", "--dropout", "0.1"},
                                              {"--report", path("page.html")}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    Words words = {"--device", "cuda", "--steps", "6"};
    words.insert(words.end(), more.begin(), more.end());
    const std::vector<double> plain = losses(words);
    words.emplace_back("--graph");
    EXPECT_EQ(losses(words), plain);
  }
}

// The command reports a step while the next step runs. The log does not show this.
TEST_F(CudaRun, TheLogHasEveryStepInOrderAsOnTheCpu) {
  const auto logged = [&](const Words& more) {
    Words all = on_ranks("1", "train",
                         {"--log", path("run.jsonl"), "--steps", "9", "--eval-data",
                          path("text.txt"), "--eval-every", "4"});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return log("run.jsonl");
  };
  const std::vector<Json> cpu = logged({});
  for (const Words& more :
       std::vector<Words>{{"--device", "cuda"}, {"--device", "cuda", "--graph"}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    const std::vector<Json> cuda = logged(more);
    ASSERT_EQ(cuda.size(), cpu.size());
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      SCOPED_TRACE(cuda[i].dump());
      for (const char* same : {"step", "lr", "loss_scale", "skipped"}) {
        EXPECT_EQ(cuda[i].at(same), cpu[i].at(same)) << same;
      }
      for (const char* near : {"loss", "grad_norm"}) {
        const double first = cpu[0].at(near).get<double>();
        EXPECT_NEAR(cuda[i].at(near).get<double>(), cpu[i].at(near).get<double>(),
                    small_bounds().later_loss * first)
            << near;
      }
      EXPECT_EQ(cuda[i].contains("eval_loss"), cpu[i].contains("eval_loss"));
      EXPECT_EQ(cuda[i].at("peak_bytes"), cuda[i].at("planned_peak_bytes"));
      EXPECT_GT(cuda[i].at("seconds"), 0.0);
    }
  }
}

// The host runs ahead of the device by a full stream queue, but the log reports the device's time.
// Delays of every task give all steps about the same duration.
TEST_F(CudaRun, NoStepIsReportedShorterThanItWas) {
  if (!machine_is_emulated()) { GTEST_SKIP() << "tasks of a real device cannot be delayed"; }
  const Variable delay{"TESSERA_EMULATED_CUDA_DELAY_US", "2000"};
  const Variable queue{"TESSERA_EMULATED_CUDA_QUEUE", "40"};
  for (const Words& more : std::vector<Words>{{}, {"--graph"}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    Words all =
        on_ranks("1", "train", {"--log", path("run.jsonl"), "--steps", "8", "--device", "cuda"});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::vector<double> seconds;
    for (const Json& line : log("run.jsonl")) {
      seconds.push_back(line.at("seconds"));
      // bound: a quotient in fp64
      EXPECT_NEAR(line.at("tokens_per_second").get<double>() * seconds.back(), 32, 1e-6);
    }
    ASSERT_EQ(seconds.size(), 8U);
    const double quickest = *std::min_element(seconds.begin() + 2, seconds.end() - 1);
    EXPECT_GT(seconds.back(), quickest / 1.5) << testing::PrintToString(seconds);
    EXPECT_GT(seconds[3], quickest / 1.5) << testing::PrintToString(seconds);
  }
}

// Each device task is delayed by at most a millisecond. A span measures device time, which excludes
// the host's work.
TEST_F(CudaRun, ATraceHasASpanOfEveryUnitsForwardBackwardGatherAndReduceAndOfTheUpdate) {
  const Variable delay{"TESSERA_EMULATED_CUDA_DELAY_US", "1000"};
  const std::vector<Words> variants = {
      {"2", "--strategy", "zero3"}, {"1", "--strategy", "ddp"}, {"1", "--graph"}};
  for (const Words& variant : variants) {
    SCOPED_TRACE(testing::PrintToString(variant));
    Words all = on_ranks(variant[0], "train",
                         {"--steps", "3", "--device", "cuda", "--trace", path("trace.json")});
    all.insert(all.end(), variant.begin() + 1, variant.end());
    const Outcome outcome = tessera(all);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    // Units by kind of span, one entry per run.
    std::map<std::string, std::multiset<std::string>> spans;
    const Json trace = Json::parse(read_file(path("trace.json")));
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("pid") != 0) { continue; }
      EXPECT_GE(event.at("dur").get<double>(), machine_is_emulated() ? 1.0 : 0.0) << event.dump();
      EXPECT_LT(event.at("dur").get<double>(), 60e6) << event.dump();
      spans[event.at("cat")].insert(event.at("args").at("unit"));
    }
    for (const char* unit : {"h.0", "h.1", "root"}) {
      const std::size_t uses = std::string{unit} == "root" ? 6 : 3;  // before the blocks and after
      EXPECT_EQ(spans["forward"].count(unit), uses) << unit;
      EXPECT_EQ(spans["backward"].count(unit), uses) << unit;
      const auto moves = [&](const char* kind, const std::string& label) {
        return std::ranges::any_of(spans[kind], [&](const std::string& of) {
          return of.find(label) != std::string::npos;
        });
      };
      if (variant[0] == "1") { continue; }
      EXPECT_TRUE(moves("all_gather", std::string{"gather "} + unit)) << unit;
      EXPECT_TRUE(moves("reduce_scatter", unit)) << unit;
    }
    EXPECT_EQ(spans["update"].count(""), 3U);
    EXPECT_EQ(spans["update"].count("all units"), 3U);
  }
}

TEST_F(CudaRun, ARunThatEndsForSkippedStepsHasReportedAllEarlierOnes) {
  for (const Words& more : std::vector<Words>{{}, {"--graph"}}) {
    SCOPED_TRACE(testing::PrintToString(more));
    Words all = on_ranks("1", "train",
                         {"--log", path("run.jsonl"), "--steps", "10", "--lr", "1e30",
                          "--max-skips", "3", "--loss-scale", "dynamic", "--device", "cuda"});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("step 3 skipped: the gradient is not finite"));
    EXPECT_THAT(outcome.err, HasSubstr("error: rank 0: step 4: the gradient is not finite"));
    EXPECT_EQ(log("run.jsonl").size(), 3U);
  }
}

TEST_F(CudaRun, ARunPrintsThatItIsDeterministic) {
  const Json json = compared(
      "2", {"--steps", "2", "--device", "cuda", "--deterministic", "--strategies", "zero3"});
  EXPECT_EQ(json.at("deterministic"), true);
  const Outcome outcome = tessera(small("train", {"--steps", "1", "--deterministic"}));
  EXPECT_THAT(outcome.out, HasSubstr("on 3 ranks (deterministic)"));
}

TEST_F(CudaRun, RecordedProductsAreForOneMachineAndForCuda) {
  write_file(
      path("p.json"),
      R"({"tessera_products": 1, "device": "a card", "cublaslt": 130100, "multiprocessors": 1,)"
      R"( "products": []})");
  const auto refused = [&](const char* device, const char* text) {
    const Outcome outcome = tessera(
        on_ranks("1", "train", {"--steps", "1", "--device", device, "--products", path("p.json")}));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(text));
  };
  refused("cuda",
          "p.json was recorded on a card with cuBLASLt 13.1.0 on 1 multiprocessors, and this is ");
  refused("cpu", "--products has no effect on a CPU");
}

TEST_F(CudaRun, SamplesTheTextOfTheCpu) {
  ASSERT_EQ(tessera(small("train", {"--steps", "3", "--checkpoint", path("w")})).status, 0);
  const auto sampled = [&](const char* device) {
    const Outcome outcome = tessera({"sample",   "--init",      path("w/model.safetensors"),
                                     "--layers", "2",           "--hidden",
                                     "20",       "--heads",     "2",
                                     "--seq",    "16",          "--ranks",
                                     "2",        "--strategy",  "zero3",
                                     "--count",  "8",           "--temperature",
                                     "0",        "--device",    device,
                                     "--json",   path("s.json")});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(read_file(path("s.json")));
    EXPECT_EQ(json.at("peak_bytes"), json.at("planned_peak_bytes"));
    return json.at("samples");
  };
  EXPECT_EQ(sampled("cuda"), sampled("cpu"));
}

TEST_F(CudaRun, ScaleMeasuresWhatItPlans) {
  const Outcome outcome = tessera({"scale", "--measure", "--model", "gpt-nano", "--seq", "16",
                                   "--batch", "1", "--budget", "36MiB", "--ranks", "1,2",
                                   "--strategies", "ddp,zero3", "--device", "cuda"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("measured 4 of 4 points: as planned on every rank"));
}

TEST_F(CudaRun, DoctorNamesTheDevicesAndTheLibraries) {
  const Outcome outcome = tessera({"doctor"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part : {"cpu, cuda", "module", "cuda:0", "CUDA runtime", "nccl (ranks"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  for (const char* part : {"NCCL ", "cuBLASLt ", "cuDNN"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("not usable")));
}

TEST_F(CudaRun, DoctorNamesTheFilesAndTheVersionsOfTheBuild) {
  const std::string out = tessera({"doctor"}).out;
  for (const char* library : {"cuBLASLt", "NCCL"}) {
    EXPECT_THAT(out, ContainsRegex(fmt::format(
                         "{} ([0-9.]+) \\(built with [0-9.]+[^)\n]*\\), /[^\n]*\\.so", library)));
  }
  if (!machine_is_emulated()) { return; }
  // The doubles are part of the module.
  EXPECT_THAT(
      out, ContainsRegex("cuBLASLt [0-9.]+ \\(built with [0-9.]+\\), " + machine().module + "\n"));
  const Variable other{"TESSERA_EMULATED_CUBLASLT_VERSION", "130001"};
  EXPECT_THAT(tessera({"doctor"}).out,
              ContainsRegex("cuBLASLt 13\\.0\\.1 \\(built with ([0-9.]+)\\), [^\n]*; the file has "
                            "changed since the build: install cuBLASLt [0-9.]+ there"));
}

TEST_F(CudaRun, DoctorSaysWhetherNcclRegistersArenas) {
  const auto says = [&](const std::string& what) {
    EXPECT_THAT(tessera({"doctor"}).out,
                ContainsRegex("NCCL 2\\.[0-9.]+ \\(built with 2\\.[0-9.]+, " + what));
  };
  says("(registers arenas|arenas are not registered: )");
  {
    const Variable off{"TESSERA_NCCL_REGISTER", "0"};
    says("arenas are not registered: TESSERA_NCCL_REGISTER=0\\)");
  }
  if (!machine_is_emulated()) { return; }
  const Variable on{"TESSERA_NCCL_REGISTER", "1"};
  {
    const Variable other{"TESSERA_EMULATED_NCCL_VERSION", "22304"};
    says("registers arenas\\)");
  }
  const Variable old{"TESSERA_EMULATED_NCCL_VERSION", "21805"};
  says("arenas are not registered: NCCL 2\\.18\\.5 cannot register them, 2\\.19 is");
}

TEST_F(CudaRun, ALibraryThatIsTooOldIsRefusedAtTheStart) {
  if (!machine_is_emulated()) { GTEST_SKIP() << "a real library is of the version that it is"; }
  const Variable old{"TESSERA_EMULATED_CUBLASLT_VERSION", "120305"};
  const std::string problem = fmt::format(
      "cuBLASLt 12.3.5 is too old: 12.4.0 or later is needed; loaded was {}; the CUDA module was "
      "built with ",
      machine().module);
  refused(small("train", {"--device", "cuda", "--steps", "1"}), 2, problem);
  const std::string out = tessera({"doctor"}).out;
  EXPECT_THAT(out, HasSubstr("; too old: 12.4.0 or later is needed; "));
  EXPECT_THAT(out, HasSubstr("not usable"));
  EXPECT_THAT(out, HasSubstr(problem));
  EXPECT_THAT(out, Not(HasSubstr("cuda:0")));
}

TEST_F(CudaRun, DoctorDoesNotNameDevicesThatCannotBeUsed) {
  if (!machine_is_emulated()) { GTEST_SKIP() << "a real device cannot be taken away"; }
  const std::vector<std::pair<const char*, const char*>> ways = {
      {"TESSERA_EMULATED_CUDA_DEVICES", "no CUDA device can be used"},
      {"TESSERA_EMULATED_CUDA_CAPABILITY", "-DTESSERA_CUDA_ARCHITECTURES=00-real"}};
  for (const auto& [name, problem] : ways) {
    const Variable none{name, "0"};
    const Outcome outcome = tessera({"doctor"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* part : {"cuda is built, but cannot be used here", "not usable", "NCCL",
                             "cuBLASLt", "without", problem}) {
      EXPECT_THAT(outcome.out, HasSubstr(part));
    }
    for (const char* part : {"cpu, cuda", "cuda:0"}) {
      EXPECT_THAT(outcome.out, Not(HasSubstr(part)));
    }
    refused(small("train", {"--device", "cuda", "--steps", "1"}), 2, problem);
  }
}

TEST_F(CudaRun, RefusesImpossibleValues) {
  const auto train = [&](const Words& more) {
    Words words = small("train", {"--device", "cuda", "--steps", "1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  refused(train({"--graph"}), 2, "--graph: 3 ranks are threads that wait for each other");
  refused(on_ranks("1", "train", {"--device", "cuda", "--graph", "--steps", "2"}), 2,
          "--graph has no effect on --steps 2");
  refused(train({"--threads", "2"}), 2, "--threads has no effect on a CUDA device");
  refused(train({"--comm", "mpi"}), 2, "--comm mpi: processes on CUDA devices are joined by NCCL");
  refused(train({"--comm", "nccl"}), 2, "--comm nccl: no launcher has started this process");
  refused(train({"--budget", "1MiB"}), 3, "--budget 1.00 MiB");
}

TEST_F(CudaRun, RanksThatShareADeviceMustFitItTogether) {
  const Variable bytes{"TESSERA_EMULATED_CUDA_BYTES", std::to_string(80 << 20)};
  if (!machine_is_emulated()) { GTEST_SKIP() << "memory of a real device cannot be taken away"; }
  refused(small("train", {"--device", "cuda", "--steps", "1"}), 3,
          "GiB and cuda:0 has 80.0 MiB free");
  const Variable devices{"TESSERA_EMULATED_CUDA_DEVICES", "3"};
  const Outcome apart = tessera(small("train", {"--device", "cuda", "--steps", "1"}));
  EXPECT_EQ(apart.status, 0) << apart.err;
}

}  // namespace
}  // namespace tessera::test::run_test

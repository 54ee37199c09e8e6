// What the command refuses: status 2, and one or two lines on standard error that say what to do.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::refusal_test {
namespace {

class Refusal : public CommandTest {
 protected:
  /// Runs and expects a refusal whose text has all of `parts`.
  void refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "") << "something was started before the refusal";
    const auto lines = std::count(outcome.err.begin(), outcome.err.end(), '\n');
    EXPECT_TRUE(lines == 1 || lines == 2) << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " is not in: " << outcome.err;
    }
  }
  void train_refused(const std::vector<std::string>& more, const std::vector<std::string>& parts) {
    refused(small("train", more), parts);
  }
};

TEST_F(Refusal, NoCommandAndUnknownCommands) {
  refused({}, {"no command", "--help"});
  refused({"trian"}, {"'trian' is not a command", "did you mean train?"});
  refused({"--frobnicate"}, {"not a command"});
}

TEST_F(Refusal, UnknownOptions) {
  train_refused({"--bathc", "4"}, {"'--bathc'", "did you mean --batch?"});
  train_refused({"--frobnicate"}, {"'--frobnicate'", "tessera train --help"});
  train_refused({"stray"}, {"'stray'"});
  train_refused({"--strategies", "ddp"}, {"'--strategies'", "did you mean --strategy?"});
  refused(small("compare", {"--log", path("x")}), {"'--log'"});
  refused({"doctor", "--ranks", "2"}, {"'--ranks'"});
}

TEST_F(Refusal, OptionsOfTrainOnly) {
  refused(small("compare", {"--trace", "t.json"}), {"--trace", "is an option of tessera train"});
}

TEST_F(Refusal, UselessOrImpossibleOffload) {
  train_refused({"--offload-keep", "0.5"},
                {"--offload-keep has no effect", "set --offload to optimizer"});
  train_refused({"--offload", "optimizer", "--offload-keep", "1"}, {"--offload-keep", "below 1"});
  train_refused({"--offload", "optimizer", "--offload-keep", "0.001"},
                {"no whole unit would stay"});
  train_refused({"--offload", "optimizer", "--optimizer", "sgd", "--momentum", "0"},
                {"--offload optimizer has no effect", "keeps no state"});
  train_refused({"--device", "cuda", "--offload", "optimizer", "--graph"},
                {"--offload optimizer cannot be one CUDA graph"});
  train_refused({"--device", "cuda", "--host-threads", "4"},
                {"--host-threads has no effect", "--offload optimizer"});
  train_refused({"--device", "cuda", "--offload", "state", "--host-threads", "4"},
                {"--host-threads has no effect", "--offload optimizer"});
  train_refused({"--offload", "optimizer", "--host-threads", "4"},
                {"--host-threads has no effect on a CPU", "--threads"});
  train_refused({"--host-threads", "257"}, {"--host-threads is 257", "up to 256"});
}

TEST_F(Refusal, ImpossibleDevices) {
  train_refused({"--device", "meta"}, {"--device: meta only counts", "use cpu or cuda"});
  train_refused({"--device", "tpu"}, {"--device: 'tpu' is unknown; use cpu or cuda"});
  train_refused({"--comm", "nccl"}, {"--comm nccl", "on the cpu", "use the device cuda"});
  train_refused({"--graph"}, {"--graph: only a CUDA device"});
  refused(small("compare", {"--graph"}), {"--graph: only a CUDA device"});
  train_refused({"--deterministic", "--nondeterministic-attention"},
                {"--nondeterministic-attention cannot be combined with --deterministic",
                 "requires the same bits in every run"});
}

TEST_F(Refusal, ACudaDeviceWithoutAModule) {
  ::setenv("TESSERA_CUDA_MODULE", "/nonexistent/module.so", 1);
  const std::vector<std::string> parts = {"--device cuda",
                                          "the CUDA module /nonexistent/module.so"};
  for (const char* command : {"train", "compare"}) {
    refused(small(command, {"--device", "cuda", "--steps", "1"}), parts);
  }
  refused({"scale", "--measure", "--for", "cuda", "--model", "gpt-nano"}, parts);
  EXPECT_EQ(tessera({"plan", "--for", "cuda"}).status, 0) << "a plan needs none";
  const Outcome doctor = tessera({"doctor"});
  EXPECT_EQ(doctor.status, 0);
  EXPECT_NE(doctor.out.find("not usable"), std::string::npos) << doctor.out;
  ::unsetenv("TESSERA_CUDA_MODULE");
}

TEST_F(Refusal, UnknownValues) {
  train_refused({"--strategy", "zero4"}, {"--strategy", "zero4", "zero3"});
  train_refused({"--reduce-dtype", "fp16"}, {"--reduce-dtype", "'fp16'"});
  train_refused({"--precision", "fp8"}, {"--precision", "'fp8'"});
  train_refused({"--lr-schedule", "linear"}, {"--lr-schedule", "cosine"});
  train_refused({"--accumulate-mode", "never"}, {"--accumulate-mode", "deferred"});
  train_refused({"--offload", "everything"}, {"--offload", "optimizer,activations"});
  train_refused({"--offload", "optimizer,state"}, {"--offload", "exclude each other"});
  train_refused({"--recompute", "some"}, {"--recompute", "every:K"});
  train_refused({"--recompute", "every:0"}, {"--recompute", "from 1 to"});
  train_refused({"--head-rows", "-1"}, {"--head-rows", "from 0 to"});
  train_refused({"--recompute", "gelu,none"}, {"--recompute", "none stands alone"});
  train_refused({"--recompute", "gelu,layer-norm,gelu"}, {"--recompute", "gelu is named twice"});
  train_refused({"--recompute", "every:2,block"}, {"--recompute", "every:2 and block both choose"});
  train_refused({"--recompute", "gelu,block"},
                {"--recompute", "block recomputes every layer whole", "nothing is left for gelu"});
  refused(small("compare", {"--strategies", "ddp,zero9"}), {"--strategies", "zero9"});
  refused(small("compare", {"--strategies", "zero3,fsdp"}), {"zero3", "twice"});
  refused(small("compare", {"--strategies", "ddp,,zero1"}), {"--strategies", "empty"});
}

TEST_F(Refusal, InvalidNumbers) {
  for (const char* text : {"nan", "inf", "x", "", "1e999", "0.1x"}) {
    train_refused({"--lr", text}, {"--lr", std::string{"'"} + text + "'"});
  }
  train_refused({"--steps", "2.5"}, {"--steps", "whole number"});
  train_refused({"--steps", "-1"}, {"--steps", "whole number"});
  train_refused({"--steps", "99999999999999999999"}, {"--steps", "whole number"});
  train_refused({"--warmup", "-3"}, {"--warmup"});
  train_refused({"--seed", "one"}, {"--seed"});
}

// Taken as 0, they would switch off what they set.
TEST_F(Refusal, NumbersThatFp32RoundsToZero) {
  for (const char* option : {"--lr", "--clip", "--weight-decay", "--eps", "--dropout"}) {
    train_refused({option, "1e-46"}, {std::string{option} + ": '1e-46' rounds to 0 in fp32",
                                      "the smallest number above 0 is 1e-45"});
  }
  train_refused({"--clip", "-1e-46"}, {"--clip: '-1e-46' rounds to 0"});
  train_refused({"--lr", "1e-45", "--min-lr", "1"}, {"--min-lr", "above --lr"});
}

TEST_F(Refusal, NumbersBeyondTheIntendedLimit) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"--seed", "9223372036854775808"}, "from 0 to 9223372036854775807"},
      {{"--clip", "1e39"}, "and at most 3.4028235e+38"},
      {{"--layers", "65537"}, "from 1 to 65536"},
      {{"--recompute", "every:65537"}, "from 1 to 65536"},
      {{"--deadline", "0"}, "above 0 and below 1"},
      {{"--deadline", "1e7"}, "above 0 and below 1"},
  };
  for (const auto& [option, limit] : table) {
    std::vector<std::string> all = {"train", "--data", path("text.txt")};
    all.insert(all.end(), option.begin(), option.end());
    refused(all, {option[0] + ": '", limit});
  }
}

TEST_F(Refusal, ByTheLibraryNamesTheTypedOption) {
  const auto zero3 = [&](const char* option, const char* value) {
    train_refused({"--strategy", "zero3", "--offload", "optimizer", option, value},
                  {std::string{option} + " is " + value});
  };
  zero3("--persist", "5");
  zero3("--offload-keep", "0.001");
}

TEST_F(Refusal, NumbersOutOfRange) {
  train_refused({"--lr", "-1"}, {"--lr must be a finite number >= 0, but is -1"});
  train_refused({"--beta1", "1"}, {"--beta1 must be a finite number in [0, 1), but is 1"});
  train_refused({"--beta2", "0.9999999999"}, {"--beta2", "in [0, 1), but is 1"});
  train_refused({"--eps", "0"}, {"--eps must be a finite number > 0"});
  train_refused({"--clip", "-1"}, {"--clip must be a finite number >= 0"});
  train_refused({"--clip", "nan"}, {"--clip"});
  train_refused({"--weight-decay", "-0.1"}, {"--weight-decay"});
  train_refused({"--dropout", "1"}, {"--dropout", "below 1"});
  train_refused({"--accumulate", "0"}, {"--accumulate", "from 1 to"});
  train_refused({"--strategy", "zero3", "--prefetch", "-1"}, {"--prefetch is -1", "0 to 1024"});
  train_refused({"--min-lr", "1", "--lr", "0.1"}, {"--min-lr", "above --lr"});
  refused(small("compare", {"--steps", "0"}), {"--steps"});
  refused({"train", "--data", path("text.txt"), "--batch", "0"}, {"--batch"});
}

TEST_F(Refusal, StacksTooSmallForRanks) {
  if (TESSERA_SANITIZED) { GTEST_SKIP() << "sanitizers need larger stacks to start"; }
  const Outcome outcome = shell("ulimit -s 160; exec \"$0\" \"$@\"", small("train"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err,
            "error: stacks are limited to 160 KiB (ulimit -s), and ranks need 512 KiB; raise that "
            "limit\n");
}

TEST_F(Refusal, ImpossibleRanks) {
  for (const char* ranks : {"0", "-2", "1000000", "four"}) {
    refused({"train", "--data", path("text.txt"), "--ranks", ranks},
            {"--ranks", ranks, "from 1 to"});
  }
}

TEST_F(Refusal, MoreThreadsThanOneProcessCanHave) {
  refused({"train", "--data", path("text.txt"), "--ranks", "257"}, {"--ranks", "257", "256"});
}

/// Sets environment variables for one scope.
class Variables {
 public:
  explicit Variables(std::vector<std::pair<const char*, const char*>> all) : all_{std::move(all)} {
    for (const auto& [name, value] : all_) { setenv(name, value, 1); }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& each : all_) { unsetenv(each.first); }
  }

 private:
  std::vector<std::pair<const char*, const char*>> all_;
};

// Otherwise each process would train a model of its own and write the same files.
TEST_F(Refusal, BeingOneOfSeveralProcessesThatCannotBeJoined) {
  const Variables torchrun{{{"WORLD_SIZE", "4"}, {"RANK", "0"}}};
  train_refused({}, {"torchrun", "one of 4 processes (WORLD_SIZE)", "mpirun -n 4",
                     "--comm local --ranks 4", "if it did not, unset WORLD_SIZE"});
}

class LauncherVariables : public test::CommandTest {
 protected:
  using Set = std::vector<std::pair<const char*, const char*>>;
  /// The variables of a process that is not the first of its job, by launcher.
  const std::vector<Set> stale_ = {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}},
                                   {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}},
                                   {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "3"}},
                                   {{"WORLD_SIZE", "4"}, {"RANK", "3"}}};
};

TEST_F(LauncherVariables, DoNotMatterWithCommLocal) {
  for (const Set& set : stale_) {
    const Variables stale{set};
    const Outcome outcome =
        tessera(small("train", {"--comm", "local", "--steps", "1", "--log", path("log")}));
    EXPECT_EQ(outcome.status, 0) << set[0].first << ": " << outcome.err;
    EXPECT_NE(outcome.out, "") << set[0].first << " made the only process silent";
    EXPECT_EQ(log("log").size(), 1U) << set[0].first;
    std::filesystem::remove(path("log"));
  }
}

// A command of one process that does nothing says so.
TEST_F(LauncherVariables, AreNamedByACommandThatLeavesItsWorkToTheFirstProcess) {
  for (const Set& set : stale_) {
    const Variables stale{set};
    for (const char* const command : {"checkpoint", "plan", "doctor"}) {
      const Outcome outcome = tessera({command});
      EXPECT_EQ(outcome.status, 0);
      EXPECT_EQ(outcome.out, "");
      for (const std::string part :
           {"process 3 leaves this to process 0", "unset ", set[0].first}) {
        EXPECT_NE(outcome.err.find(part), std::string::npos) << part << ": " << outcome.err;
      }
    }
  }
}

TEST_F(LauncherVariables, OfAJobOfOneLeaveRanksThatAreThreads) {
  for (const Set& set : std::vector<Set>{{{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
                                         {{"WORLD_SIZE", "1"}, {"RANK", "0"}}}) {
    const Variables stale{set};
    const Outcome outcome = tessera(small("train", {"--steps", "1"}));
    EXPECT_EQ(outcome.status, 0) << set[0].first << ": " << outcome.err;
  }
}

// Other ranks wait before they report: if rank 0 fails too, it reports first and ends the job.
TEST_F(Refusal, ByALaterProcessComesAfterTheFirst) {
  const Variables torchrun{{{"WORLD_SIZE", "4"}, {"RANK", "3"}}};
  const auto begin = std::chrono::steady_clock::now();
  refused({"trian"}, {"'trian' is not a command"});
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{1});
}

TEST_F(Refusal, ImpossibleCommunicators) {
  train_refused({"--comm", "mpi"}, {"--comm mpi: ", "--comm local"});
  train_refused({"--comm", "gloo"}, {"--comm", "'gloo' is unknown", "auto, local, mpi or nccl"});
}

TEST_F(Refusal, ImpossibleThreads) {
  for (const std::string threads : {"0", "-2", "257"}) {
    train_refused({"--threads", threads}, {"--threads is " + threads, "from 1 to 256"});
  }
  for (const char* threads : {"99999999999999999999", "two", "1.5", ""}) {
    refused(small("compare", {"--threads", threads}), {"--threads: ", "is not a whole number"});
  }
}

TEST_F(Refusal, OptionsWithoutValueOrGivenTwice) {
  train_refused({"--steps"}, {"--steps"});
  for (const char* command : {"train", "compare"}) {
    refused(small(command, {"--steps", "3", "--steps=4"}), {"--steps is given more than once"});
  }
  refused({"bench", "adamw", "--repeat", "1", "--repeat", "2"},
          {"--repeat is given more than once"});
  train_refused({"--no-shuffle=false"}, {"no-shuffle"});
}

TEST_F(Refusal, OptionsThatContradictEachOther) {
  train_refused({"--model", "gpt2"}, {"--model", "--layers"});
  refused(small("train", {"--tokens", path("text.txt")}), {"--data", "--tokens"});
  refused({"train", "--steps", "1"}, {"--data", "--tokens"});
  refused({"train", "--model", "gpt3", "--data", path("text.txt")}, {"gpt3", "gpt2-xl"});
}

TEST_F(Refusal, ReduceDtypesThatChangeNothing) {
  const std::vector<std::pair<std::string, std::string>> none = {{"fp16", "bf16"},
                                                                 {"bf16", "fp32"}};
  for (const auto& [gradient, reduce] : none) {
    const std::vector<std::string> more = {"--gradient-dtype", gradient, "--reduce-dtype", reduce};
    const std::string why = "--reduce-dtype " + reduce + " has no effect";
    train_refused(more, {why, "gradients of " + gradient});
    refused(small("compare", more), {why, "gradients of " + gradient});
  }
}

TEST_F(Refusal, ADecayOfAConstantRate) {
  train_refused({"--min-lr", "1e-5", "--lr-schedule", "constant"}, {"--min-lr", "constant"});
}

TEST_F(Refusal, IncompatibleSizes) {
  refused({"train", "--data", path("text.txt"), "--hidden", "20", "--heads", "3"},
          {"heads", "hidden"});
  refused({"train", "--data", path("text.txt"), "--layers", "0"}, {"--layers"});
  refused({"train", "--data", path("text.txt"), "--vocab", "-5"}, {"--vocab"});
}

TEST_F(Refusal, OptionsOfOtherCommandsAreNamedAsSuch) {
  train_refused({"--params", "7e9"}, {"'--params'", "it is an option of tessera plan"});
  refused({"plan", "--weight-decay", "0"}, {"it is an option of tessera train, tessera compare"});
}

TEST_F(Refusal, InvalidBudgets) {
  const std::vector<std::string> none = {
      "0", "12XB", "-1", "x", "", "1e9", "nan", "0GB", "99999999999GiB", "18446744073709551616"};
  for (const std::string& text : none) {
    train_refused({"--budget", text}, {"--budget: ", "GiB"});
    refused({"plan", "--budget", text}, {"--budget: "});
  }
  refused(small("compare", {"--budget"}), {"--budget"});
}

TEST_F(Refusal, ImpossiblePlans) {
  const auto plan = [&](std::vector<std::string> more, const std::vector<std::string>& parts) {
    more.insert(more.begin(), "plan");
    refused(more, parts);
  };
  for (const char* text : {"0", "-1", "1e30", "nan", "inf", "7.5", "x", "", "1125899906842625"}) {
    plan({"--params", text},
         {"--params: ", std::string{"'"} + text + "'", "from 1 to 1125899906842624"});
  }
  plan({"--params", "1125899906842624", "--ranks", "1000"}, {"above 2^50 elements"});
  for (const char* text : {"0", "-4", "1048577", "many"}) {
    plan({"--ranks", text}, {"--ranks: ", text, "from 1 to 1048576"});
  }
  for (const std::vector<std::string>& other : {std::vector<std::string>{"--model", "gpt2"},
                                                {"--layers", "3"},
                                                {"--batch", "2"},
                                                {"--threads", "2"},
                                                {"--seq", "8"}}) {
    plan({"--params", "1e6", other[0], other[1]}, {"--params cannot be combined with " + other[0]});
  }
  plan({"--strategy", "ddp", "--strategies", "ddp"}, {"--strategy and --strategies"});
  plan({"--strategies", "ddp,zero9"}, {"--strategies: ", "zero9"});
  plan({"--for", "cuda", "--comm", "mpi"}, {"--comm mpi: processes on CUDA devices"});
  plan({"--for", "cuda", "--threads", "2"}, {"--threads has no effect on a CUDA device"});
  plan({"--for", "cuda", "--device", "cuda"}, {"--device and --for cannot be combined"});
  plan({"--for", "tpu"}, {"--for: 'tpu' is unknown"});
  plan({"--comm", "nccl"}, {"--comm nccl: NCCL moves memory of CUDA devices"});
  plan({"--precision", "fp8"}, {"--precision: 'fp8' is unknown; use fp32, bf16, fp16"});
  plan({"--gradient-dtype", "fp64"}, {"--gradient-dtype: 'fp64'"});
  plan({"--gradient-dtype", "fp16", "--reduce-dtype", "bf16"},
       {"--reduce-dtype bf16 has no effect"});
  plan({"--ranks", "257", "--comm", "local"}, {"--comm local", "at most 256 ranks, not 257"});
  plan({"--lr", "1"}, {"'--lr'", "an option of tessera train"});
  plan({"--reduce-dtype", "fp16"}, {"--reduce-dtype: 'fp16' is unknown; use fp32, bf16"});
  plan({"--report", path("no/such/r.html")}, {"--report: cannot write"});
  plan({"--trace", "t.json"}, {"--trace is an option of tessera train"});
  plan({"--json", path("no/such/plan.json")}, {"--json: cannot write"});
  plan({"--batch", "1000000", "--seq", "100000"}, {"a micro-batch of 1000000 sequences"});
  plan({"--hidden", "20", "--heads", "3"}, {"heads", "hidden"});
  plan({"--model", "gpt3"}, {"gpt3", "gpt2-xl"});
}

TEST_F(Refusal, DataThatCannotBeUsed) {
  write_file(folder() / "empty.txt", "");
  write_file(folder() / "short.txt", "too short");
  std::filesystem::create_directory(folder() / "bare");
  const auto with = [](const std::string& data, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "--data", data});
    return more;
  };
  refused(with(path("missing.txt")), {"missing.txt"});
  refused(with(path("empty.txt")), {"empty.txt"});
  refused(with(path("bare")), {"bare"});
  refused(with(path("short.txt")), {"short.txt", "9 tokens", "513"});
  refused(with(path("text.txt"), {"--seq", "19999", "--ranks", "4"}), {"20000 tokens", "4 ranks"});
  refused(with(path("text.txt"), {"--vocab", "100"}), {"100"});
  refused({"train", "--data", ""}, {"--data"});
}

TEST_F(Refusal, TokensOutsideTheVocabularyNamePlaceAndValue) {
  std::string bytes;
  for (int i = 0; i < 2'000; ++i) { bytes += {static_cast<char>(i % 50), '\0'}; }
  bytes[2 * 1'500] = static_cast<char>(77);
  write_file(folder() / "tokens.bin", bytes);
  refused({"train", "--tokens", path("tokens.bin"), "--vocab", "50", "--seq", "16"},
          {"77", "1500"});
  const std::string header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2000,)}\n";
  write_file(folder() / "tokens.npy", std::string{"\x93NUMPY\x01\0", 8} +
                                          static_cast<char>(header.size()) + '\0' + header +
                                          bytes.replace(2 * 1'600, 2, "\xFF\xFF"));
  refused({"train", "--tokens", path("tokens.npy"), "--vocab", "100", "--seq", "16"},
          {"tokens.npy", "token -1 at position 1600 is below 0"});
  write_file(folder() / "odd.bin", "abc");
  refused({"train", "--tokens", path("odd.bin"), "--seq", "16"}, {"odd.bin"});
}

TEST_F(Refusal, InvalidLossScalesAndSkips) {
  train_refused({"--loss-scale", "dynamical"}, {"--loss-scale", "use dynamic, off or a number"});
  train_refused({"--loss-scale", ""}, {"--loss-scale"});
  train_refused({"--loss-scale", "0"}, {"--loss-scale is 0: it must be above 0"});
  train_refused({"--loss-scale", "-2"}, {"--loss-scale"});
  train_refused({"--loss-scale", "1e9"}, {"--loss-scale", "2^24"});
  train_refused({"--max-skips", "-1"}, {"--max-skips is -1"});
  train_refused({"--max-skips", "many"}, {"--max-skips"});
}

TEST_F(Refusal, FilesThatCannotBeWritten) {
  train_refused({"--log", path("no/such/folder/run.jsonl")}, {"--log", "cannot write"});
  train_refused({"--checkpoint", path("text.txt")}, {"--checkpoint"});
  refused(small("compare", {"--json", folder().string()}), {"--json", "cannot write"});
}

TEST_F(Refusal, APipeThatNobodyReads) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  train_refused({"--log", path("pipe")}, {"pipe", "without a reader"});
}

TEST_F(Refusal, OverwritingWhatTheRunReads) {
  train_refused({"--log", path("text.txt")}, {"--log", "read by this run"});
  EXPECT_EQ(read_file(path("text.txt")), text(20'000));
}

// A second run would train on the first run's output.
TEST_F(Refusal, WritingIntoAFolderThatTheRunReads) {
  const std::string folder = path("texts");
  std::filesystem::create_directory(folder);
  std::filesystem::copy(path("text.txt"), folder + "/a.txt");
  const auto reading = [&](const std::string& input, const std::vector<std::string>& output) {
    std::vector<std::string> all = {"train",   "--layers", "1",     "--hidden", "8",
                                    "--heads", "2",        "--seq", "8",        "--steps",
                                    "1",       input,      folder};
    if (input != "--data") { all.insert(all.end(), {"--data", path("text.txt")}); }
    all.insert(all.end(), output.begin(), output.end());
    return all;
  };
  for (const std::string input : {"--data", "--eval-data"}) {
    refused(reading(input, {"--log", folder + "/a.txt"}), {"--log", "lies in " + folder});
    refused(reading(input, {"--log", folder + "/log.jsonl"}), {"--log", "lies in " + folder});
    refused(reading(input, {"--report", folder + "/../texts/r.html"}), {"--report", "lies in"});
    refused(reading(input, {"--checkpoint", folder}), {"--checkpoint", "lies in " + folder});
  }
  EXPECT_EQ(read_file(folder + "/a.txt"), text(20'000));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder}, {}), 1);
}

TEST_F(Refusal, WeightsThatDoNotFit) {
  train_refused({"--init", path("missing.safetensors")}, {"missing.safetensors"});
  train_refused({"--init", path("text.txt")}, {"text.txt"});
}

TEST_F(Refusal, MoreMemoryThanTheMachineHasExitsWithThree) {
  const Outcome outcome = tessera({"train", "--data", path("text.txt"), "--model", "gpt2-xl",
                                   "--ranks", "256", "--steps", "1", "--init", path("none")});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.err.find("fewer ranks"), std::string::npos) << outcome.err;
  // The bytes of these activations do not fit into 64 bits.
  EXPECT_EQ(tessera({"train", "--data", path("text.txt"), "--layers", "60000", "--hidden", "30000",
                     "--heads", "1", "--seq", "100000000", "--batch", "10"})
                .status,
            3);
}

}  // namespace
}  // namespace tessera::test::refusal_test

// The tessera command as a job of processes: its results, which process prints, and how it ends.
#include "cli/command.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <regex>
#include <utility>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::command_test {
namespace {

using ::tessera::test::MpiJob;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSeconds{30};

class MpiCommand : public CommandTest {
 protected:
  /// Arguments of a short run, with sizes that the number of ranks does not divide.
  [[nodiscard]] Words model(const std::string& command, const Words& more) const {
    Words all = {command,   "--data", path("text.txt"), "--layers", "2",       "--hidden", "20",
                 "--heads", "2",      "--seq",          "16",       "--batch", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] static Words as_process(Words arguments) {
    arguments.insert(arguments.begin(), test::kCommand);
    return arguments;
  }
  /// Runs the command as a job that ends within seconds.
  static Outcome job(int ranks, const Words& arguments) {
    const auto begin = Clock::now();
    MpiJob job{ranks, as_process(arguments)};
    const int status = job.wait();
    EXPECT_LT(Clock::now() - begin, kSeconds);
    return {status, job.output(), ""};
  }
  /// Runs a job that fails; only one process prints the error, which contains `parts`.
  static void refused(int ranks, const Words& arguments, int status, const Words& parts) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    const Outcome outcome = job(ranks, arguments);
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(count("error: ", outcome.out), 1) << outcome.out;
    for (const std::string& part : parts) { EXPECT_THAT(outcome.out, HasSubstr(part)); }
  }
  static int count(const std::string& text, const std::string& in) {
    int found = 0;
    for (auto at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) { ++found; }
    return found;
  }
  [[nodiscard]] Json json(const std::string& name) const {
    return Json::parse(read_file(path(name)));
  }
};

/// The fields of a log line that depend neither on time nor on the communicator.
Json results(Json line) {
  for (const char* other : {"seconds", "tokens_per_second", "peak_bytes", "planned_peak_bytes"}) {
    line.erase(other);
  }
  return line;
}

using Case = std::pair<int, std::string>;
class MpiTrain : public MpiCommand, public ::testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MpiTrain,
                         ::testing::Values(Case{2, "ddp"}, Case{2, "zero3"}, Case{4, "ddp"},
                                           Case{4, "zero3"}, Case{4, "hybrid"}),
                         [](const auto& tested) {
                           return tested.param.second + "_" + std::to_string(tested.param.first);
                         });

TEST_P(MpiTrain, GivesTheBitsOfThreads) {
  const int ranks = GetParam().first;
  const std::string& strategy = GetParam().second;
  const auto arguments = [&](const std::string& name) {
    Words all = model("train", {"--strategy", strategy, "--steps", "6", "--log",
                                path(name + ".jsonl"), "--checkpoint", path(name)});
    if (strategy == "hybrid") { all.insert(all.end(), {"--shard-group", "2"}); }
    return all;
  };
  const Outcome processes = job(ranks, arguments("processes"));
  ASSERT_EQ(processes.status, 0) << processes.out;
  Words local = arguments("threads");
  local.insert(local.end(), {"--ranks", std::to_string(ranks)});
  const Outcome threads = tessera(local);
  ASSERT_EQ(threads.status, 0) << threads.err;

  const std::vector<Json> ours = log("processes.jsonl");
  const std::vector<Json> theirs = log("threads.jsonl");
  ASSERT_EQ(ours.size(), 6U);
  ASSERT_EQ(theirs.size(), 6U);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(results(ours[i]), results(theirs[i]));
    EXPECT_EQ(ours[i].at("peak_bytes").size(), static_cast<std::size_t>(ranks));
    EXPECT_EQ(ours[i].at("peak_bytes"), ours[i].at("planned_peak_bytes"));
  }
  const std::string weights = read_file(path("processes/model.safetensors"));
  EXPECT_GT(weights.size(), 15'600 * sizeof(float));
  EXPECT_TRUE(weights == read_file(path("threads/model.safetensors")));
}

TEST_F(MpiCommand, HybridShardsAmongTheProcessesOfThisMachineUnlessTold) {
  const Words hybrid = {"--strategy", "hybrid", "--steps", "2"};
  const Outcome whole = job(2, model("train", hybrid));
  EXPECT_EQ(whole.status, 0) << whole.out;
  EXPECT_THAT(whole.out, HasSubstr("hybrid in groups of 2 on 2 ranks"));
  Words uneven = model("train", hybrid);
  uneven.insert(uneven.end(), {"--shard-group", "3"});
  refused(4, uneven, 2, {"--shard-group is 3", "choose one of 1, 2, 4"});
}

/// Starts the command `words` as if rank r ran on the r-th machine of `machines`, and the launcher
/// had announced each machine's number of ranks.
Words on_machines(const std::string& machines, const Words& words) {
  const std::string script = "machine=$(echo " + machines +
                             R"( | cut -d' ' -f$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} + 1)))
count=$(echo )" + machines + R"( | tr ' ' '
' | grep -c "^$machine\$")
export TESSERA_MACHINE=$machine OMPI_COMM_WORLD_LOCAL_SIZE=$count MPI_LOCALNRANKS=$count
exec "$@")";
  Words all = {"sh", "-c", script, "sh"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

TEST_F(MpiCommand, HybridIsRefusedWhereItsGroupsWouldNotBeThoseOfMachines) {
  const auto run = [&](const std::string& machines, const Words& more) {
    Words arguments = model("train", {"--strategy", "hybrid", "--steps", "1"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto ranks = 1 + std::count(machines.begin(), machines.end(), ' ');
    MpiJob started{static_cast<int>(ranks), on_machines(machines, as_process(arguments))};
    const int status = started.wait();
    return Outcome{status, started.output(), ""};
  };
  const Outcome two = run("a a b b", {});
  EXPECT_EQ(two.status, 0) << two.out;
  EXPECT_THAT(two.out, HasSubstr("hybrid in groups of 2 on 4 ranks"));

  const Outcome in_turn = run("a b a b", {});
  EXPECT_EQ(in_turn.status, 2);
  EXPECT_EQ(count("error: ", in_turn.out), 1) << in_turn.out;
  EXPECT_THAT(in_turn.out, HasSubstr("ranks 0 to 1 are not on one"));
  EXPECT_THAT(in_turn.out, HasSubstr("--shard-group S, one of 1, 2, 4, or place them machine"));

  const Outcome uneven = run("a a b c", {});
  EXPECT_EQ(uneven.status, 2);
  EXPECT_EQ(count("error: ", uneven.out), 1) << uneven.out;
  EXPECT_THAT(uneven.out, HasSubstr("there are 2 with rank 0 and 1 with rank 2"));
  EXPECT_THAT(uneven.out, HasSubstr("give --shard-group S, one of 1, 2, 4"));

  const Outcome typed = run("a b a b", {"--shard-group", "2"});
  EXPECT_EQ(typed.status, 0) << typed.out;
}

TEST_F(MpiCommand, RanksThatWouldStartFromOtherWeightsAreNamed) {
  const auto weights = [&](const std::string& name, const char* seed) {
    const Words made = model("train", {"--steps", "0", "--checkpoint", path(name), "--seed", seed});
    EXPECT_EQ(tessera(made).status, 0);
    return path(name + "/model.safetensors");
  };
  const auto started_from = [&](const std::string& init) {
    return as_process(model("train", {"--steps", "1", "--strategy", "zero1", "--init", init}));
  };
  const auto joined = [&](const std::string& first, const std::string& second) {
    Words all = started_from(first);
    all.erase(all.begin());  // added by the job
    const Words colon = {":", "-n", "2"};
    all.insert(all.end(), colon.begin(), colon.end());
    const Words other = started_from(second);
    all.insert(all.end(), other.begin(), other.end());
    return all;
  };
  const std::string first = weights("first", "1");
  const std::string same = weights("same", "1");
  const std::string other = weights("other", "2");
  EXPECT_EQ(job(1, joined(first, same)).status, 0) << "the path does not matter";
  refused(1, joined(first, other), 2,
          {"--init: ranks 1, 2 would start from weights that differ from rank 0's", "same file"});
}

TEST_F(MpiCommand, OptionsThatProcessesHaveToShareAreCompared) {
  write_file(path("other.txt"), text(20'000).replace(10'000, 1, "?"));
  const auto joined = [&](const Words& mine, const Words& theirs) {
    Words all = as_process(model("train", mine));
    all.erase(all.begin());  // added by the job
    const Words colon = {":", "-n", "2"};
    all.insert(all.end(), colon.begin(), colon.end());
    const Words others = as_process(model("train", theirs));
    all.insert(all.end(), others.begin(), others.end());
    return all;
  };
  const Words usual = {"--steps", "2", "--lr", "0.01"};
  const auto with = [&](const Words& more) {
    Words all = usual;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_EQ(job(1, joined(usual, {"--steps", "2", "--lr", "1e-2", "--log", path("x")})).status, 0);
  refused(1, joined(usual, {"--steps", "3", "--lr", "0.01"}), 2,
          {"--steps: rank 0 has 2, and ranks 1, 2 have 3; give every process"});
  refused(1, joined(with({"--dropout", "0.1"}), usual), 2,
          {"--dropout: rank 0 has 0.1, and ranks 1, 2 have 0;"});
  refused(1, joined(with({"--checkpoint", path("w")}), usual), 2,
          {"--checkpoint: rank 0 has given, and ranks 1, 2 have none;"});
  // Another file of the same size.
  Words other = joined(usual, usual);
  *std::find(other.rbegin(), other.rend(), path("text.txt")) = path("other.txt");
  refused(1, other, 2, {"--data: rank 0 has 20000 tokens of hash ", "and ranks 1, 2 have 20000 "});
}

/// The memory of a rank without its communicator's.
Json own_bytes(Json rank) {
  const std::size_t communicator = rank.at("at_peak").at("communicator");
  for (const char* peak : {"peak_bytes", "planned_peak_bytes"}) {
    rank[peak] = rank.at(peak).get<std::size_t>() - communicator;
  }
  rank["at_peak"].erase("communicator");
  return rank;
}

TEST_F(MpiCommand, ComparesAsThreadsDo) {
  const Words strategies = {"--steps", "3", "--strategies", "dp,ddp,zero2,zero3", "--json"};
  Words arguments = model("compare", strategies);
  arguments.push_back(path("processes.json"));
  const Outcome processes = job(3, arguments);
  ASSERT_EQ(processes.status, 0) << processes.out;
  EXPECT_EQ(count("bit-identical under all 4 strategies", processes.out), 1) << processes.out;
  arguments.back() = path("threads.json");
  arguments.insert(arguments.end(), {"--ranks", "3"});
  ASSERT_EQ(tessera(arguments).status, 0);

  const Json ours = json("processes.json");
  const Json theirs = json("threads.json");
  EXPECT_EQ(ours.at("comm"), "mpi");
  EXPECT_EQ(theirs.at("comm"), "local");
  EXPECT_EQ(ours.at("ranks"), 3);
  EXPECT_EQ(ours.at("model"), theirs.at("model"));
  ASSERT_EQ(ours.at("strategies").size(), 4U);
  for (std::size_t s = 0; s < 4; ++s) {
    const Json& a = ours.at("strategies")[s];
    const Json& b = theirs.at("strategies")[s];
    EXPECT_EQ(a.at("name"), b.at("name"));
    EXPECT_EQ(a.at("losses"), b.at("losses"));
    ASSERT_EQ(a.at("ranks").size(), 3U);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_GT(a.at("ranks")[r].at("at_peak").at("communicator"), 0);
      EXPECT_EQ(a.at("ranks")[r].at("planned_peak_bytes"), a.at("ranks")[r].at("peak_bytes"));
      EXPECT_EQ(own_bytes(a.at("ranks")[r]), own_bytes(b.at("ranks")[r]));
    }
  }
}

TEST_F(MpiCommand, ABudgetIsJudgedBeforeAnyProcessTrains) {
  Words plan = {"plan",       "--comm", "mpi",    "--ranks",        "2",
                "--strategy", "zero3",  "--json", path("plan.json")};
  ASSERT_EQ(tessera(plan).status, 0);
  const std::size_t peak =
      json("plan.json").at("strategies")[0].at("ranks")[0].at("planned_peak_bytes");
  const auto train = [&](std::size_t budget) {
    return Words{"train",   "--data", path("text.txt"), "--strategy",          "zero3",
                 "--steps", "1",      "--budget",       std::to_string(budget)};
  };
  EXPECT_EQ(job(2, train(peak)).status, 0);
  refused(2, train(peak - 1), 3, {"--budget", "would hold", "communicator"});
  refused(2, train(1), 3, {"--budget 1 B", "would hold"});
}

TEST_F(MpiCommand, OnlyRankZeroPrints) {
  const Outcome outcome = job(3, model("train", {"--steps", "20"}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(outcome.out.rfind("custom: 15600 parameters, ddp on 3 ranks (mpi)", 0), 0U)
      << outcome.out;
  EXPECT_EQ(count("step 20/20", outcome.out), 1) << outcome.out;
  EXPECT_EQ(count("peak memory", outcome.out), 1) << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 14) << outcome.out;
  for (const char c : outcome.out) { ASSERT_TRUE(c == '\n' || c >= ' ') << static_cast<int>(c); }

  const Outcome doctor = job(2, {"doctor"});
  EXPECT_EQ(doctor.status, 0);
  EXPECT_EQ(count("communicators", doctor.out), 1) << doctor.out;
}

TEST_F(MpiCommand, AJobOfOneProcessRuns) {
  const Outcome outcome = job(1, model("compare", {"--comm", "mpi", "--ranks", "1", "--steps", "1",
                                                   "--json", path("out.json")}));
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(json("out.json").at("comm"), "mpi");
  EXPECT_EQ(job(1, model("compare", {"--comm", "local", "--ranks", "2", "--steps", "1", "--json",
                                     path("out.json")}))
                .status,
            0);
  EXPECT_EQ(json("out.json").at("comm"), "local");
}

TEST_F(MpiCommand, RefusesRanksThatAreNotItsProcesses) {
  refused(2, model("train", {"--ranks", "3"}), 2,
          {"error: --ranks 3: ", "one of 2 processes", "leave --ranks out", "--comm local",
           "if it did not, unset "});
}

TEST_F(MpiCommand, WithCommLocalEveryProcessIsARunOfItsOwn) {
  const Outcome outcome =
      job(2, model("train", {"--comm", "local", "--ranks", "2", "--steps", "1"}));
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_EQ(count("ddp on 2 ranks,", outcome.out), 2) << outcome.out;
}

TEST_F(MpiCommand, ReportsAProblemOfEveryProcessOnce) {
  refused(3, {"train", "--bathc", "4"}, 2, {"error: tessera train does not know '--bathc'"});
  refused(3, {"train", "--data", path("missing.txt")}, 2, {"error: rank 0: ", "missing.txt"});
  refused(2, model("train", {"--log", path("no/such/run.jsonl")}), 2, {"--log: cannot write"});
  refused(2, {"train", "--data", path("text.txt"), "--model", "gpt2", "--batch", "100000"}, 3,
          {"2 ranks of gpt2 under ddp need", "use fewer ranks on it"});
}

// Each rank reads its part of the weights and finds that they belong to another model. Any rank may
// be the first.
TEST_F(MpiCommand, ReportsAProblemOfEveryRankDuringTrainingOnce) {
  ASSERT_EQ(tessera(model("train", {"--steps", "0", "--checkpoint", path("w")})).status, 0);
  Words wider = model("train", {"--steps", "1", "--init", path("w/model.safetensors")});
  *(std::find(wider.begin(), wider.end(), "--hidden") + 1) = "24";
  refused(3, wider, 2, {"error: rank ", "model.safetensors"});
}

TEST_F(MpiCommand, ReportsAProblemOfOneProcess) {
  Words both = model("train", {"--steps", "1"});
  const Words colon = {":", "-n", "1"};
  both.insert(both.end(), colon.begin(), colon.end());
  const Words other = as_process({"train", "--data", path("missing.txt")});
  both.insert(both.end(), other.begin(), other.end());
  refused(1, both, 2, {"error: rank 1: ", "missing.txt"});

  refused(2, model("train", {"--steps", "5", "--log", "/dev/full"}), 1,
          {"--log: cannot write step 1 to /dev/full", "step 5/5", "is incomplete"});
  refused(2, model("compare", {"--steps", "1", "--strategies", "ddp", "--json", "/dev/full"}), 1,
          {"/dev/full"});
}

TEST_F(MpiCommand, SkippedStepsAreReportedOnceAndTooManyEndTheJob) {
  const Words arguments = model("train", {"--steps", "10", "--lr", "1e30", "--max-skips", "3"});
  const Outcome outcome = job(3, arguments);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(count("step 2 skipped: ", outcome.out), 1) << outcome.out;
  EXPECT_EQ(count("step 3 skipped: ", outcome.out), 1) << outcome.out;
  EXPECT_EQ(count("error: ", outcome.out), 1) << outcome.out;
  EXPECT_EQ(count("step 4: the gradient is not finite, for the 3rd time", outcome.out), 1);
  EXPECT_EQ(count("of unit '", outcome.out), 1) << outcome.out;
}

/// Starts the command, and has each process print its rank and process id.
Words saying_who(const Words& command) {
  Words words = {"sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK$PMI_RANK pid $$; exec \"$@\"", "sh"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// The number that `pattern`'s group matches in `said`; 0 if there is none.
int number_in(const std::string& said, const std::string& pattern) {
  std::smatch match;
  const bool found = std::regex_search(said, match, std::regex{pattern});
  EXPECT_TRUE(found) << pattern << " is not in: " << said;
  return found ? std::stoi(match[1]) : 0;
}

/// The process id that `rank` printed.
int process_of(int rank, const std::string& said) {
  return number_in(said, "rank " + std::to_string(rank) + " pid ([0-9]+)\n");
}

/// A job that trains without end, of which one process receives a signal.
class SignalledJob {
 public:
  explicit SignalledJob(const Words& command, int ranks = 3) : job_{ranks, saying_who(command)} {}

  /// Sends `signal` to the process of `rank`; returns the job's status, which must come within
  /// `limit`.
  int signal_and_wait(int rank, int signal, std::chrono::seconds limit = std::chrono::seconds{10}) {
    EXPECT_TRUE(job_.wait_for("step 1/", 1)) << job_.output();
    const int process = process_of(rank, job_.output());
    if (process == 0) { return -2; }
    const auto begin = Clock::now();
    EXPECT_EQ(::kill(process, signal), 0);
    const int status = job_.wait();
    EXPECT_LT(Clock::now() - begin, limit);
    return status;
  }
  [[nodiscard]] std::string output() const { return job_.output(); }

 private:
  MpiJob job_;
};

TEST_F(MpiCommand, AKilledProcessEndsTheJobWithinSeconds) {
  SignalledJob job{as_process(model("train", {"--steps", "1000000000"}))};
  EXPECT_NE(job.signal_and_wait(1, SIGKILL, std::chrono::seconds{5}), 0);
}

// mpirun names a killed process only by its rank.
TEST_F(MpiCommand, OnAMeshTheProcessOfEveryRankIsToldWithItsPlace) {
  SignalledJob job{
      as_process(model("train", {"--steps", "1000000000", "--mesh", "pipe=2,shard=1"})), 2};
  EXPECT_NE(job.signal_and_wait(1, SIGKILL, std::chrono::seconds{5}), 0);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(job.output(), HasSubstr(fmt::format("rank {0} (pipe {0}, shard 0): process {1} on ",
                                                    rank, process_of(rank, job.output()))));
  }
}

// The others wait for it, or for each other: one of them reports that, and names no other rank.
TEST_F(MpiCommand, OnlyAStoppedProcessIsReportedAndOnce) {
  for (const std::string strategy : {"ddp", "zero3"}) {
    SCOPED_TRACE(strategy);
    SignalledJob job{as_process(
        model("train", {"--steps", "1000000000", "--strategy", strategy, "--deadline", "2"}))};
    EXPECT_EQ(job.signal_and_wait(1, SIGSTOP), 4);
    EXPECT_EQ(count("error: ", job.output()), 1) << job.output();
    EXPECT_THAT(job.output(), ContainsRegex("waited [0-9]+ ms for rank 1, which "));
  }
}

// Any process may receive it. The weights are bit-identical to those of a run planned to end there.
TEST_F(MpiCommand, ASignalToOneProcessEndsAllAfterTheSameStepWithTheirWeights) {
  for (const int rank : {0, 2}) {
    SCOPED_TRACE(rank);
    const Words endless =
        model("train", {"--steps", "1000000000", "--lr-schedule", "constant", "--strategy", "zero3",
                        "--log", path("log"), "--checkpoint", path("job")});
    SignalledJob job{as_process(endless)};
    EXPECT_EQ(job.signal_and_wait(rank, SIGTERM), 128 + SIGTERM) << job.output();
    EXPECT_EQ(count("SIGTERM: the run ends after the current step", job.output()), 1);
    EXPECT_EQ(count("error: ", job.output()), 0) << job.output();
    const int steps = number_in(job.output(), "stopped by SIGTERM after step ([0-9]+) of");
    EXPECT_EQ(log("log").size(), static_cast<std::size_t>(steps));
    const Outcome threads = tessera(
        model("train", {"--steps", std::to_string(steps), "--lr-schedule", "constant", "--strategy",
                        "ddp", "--ranks", "3", "--checkpoint", path("threads")}));
    ASSERT_EQ(threads.status, 0) << threads.err;
    EXPECT_TRUE(read_file(path("job/model.safetensors")) ==
                read_file(path("threads/model.safetensors")));
    for (const char* folder : {"job", "threads"}) { std::filesystem::remove_all(path(folder)); }
  }
}

TEST_F(MpiCommand, ASecondJobIntoAFolderIsRefusedOnce) {
  const Words endless = model("train", {"--steps", "1000000000", "--checkpoint", path("c")});
  MpiJob first{2, saying_who(as_process(endless))};
  ASSERT_TRUE(first.wait_for("step 1/", 1)) << first.output();
  const int process = process_of(0, first.output());
  refused(2, model("train", {"--steps", "1", "--checkpoint", path("c")}), 2,
          {"--checkpoint: another run writes to " + path("c"),
           "process " + std::to_string(process) + " on "});
  ASSERT_EQ(::kill(process, SIGTERM), 0);
  EXPECT_EQ(first.wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace tessera::test::command_test

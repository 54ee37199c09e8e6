// What SIGINT, SIGTERM and SIGHUP do to a run.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <set>
#include <utility>

#include "cli/running_command.hpp"
#include "tools/common/noted_signals.hpp"
#include "tools/common/output_file.hpp"

namespace tessera::test::signal_test {
namespace {

using ::testing::HasSubstr;
using ::testing::KilledBySignal;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

class Signals : public CommandTest {
 protected:
  /// A run with a constant learning rate, so that its weights do not depend on its length.
  [[nodiscard]] Words training(const Words& more) const {
    Words all = small("train", {"--lr-schedule", "constant"});
    all.insert(all.begin(), kCommand);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Words endless(const Words& more) const {
    Words all = training({"--steps", "1000000000"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

/// The files that a run of `steps` steps leaves in its folder.
std::set<std::string> after(const std::string& steps) {
  return {"model.safetensors", "step-" + std::string(8 - steps.size(), '0') + steps};
}

const std::vector<std::pair<int, std::string>> kEach = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

// Its ranks wait for each other nearly always, and none is to blame.
TEST_F(Signals, ARunThatIsSuspendedForLongerThanItsDeadlineGoesOn) {
  NamedPipe pipe{path("log")};
  RunningCommand run{endless({"--deadline", "1", "--log", path("log")}), path("suspended")};
  for (std::size_t times = 1; times <= 4; ++times) {
    ASSERT_TRUE(pipe.read_lines(pipe.lines() + 3));
    run.send(SIGSTOP);
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds{1200};
    ASSERT_TRUE(test::wait_until([&] { return Clock::now() > end; }));
    run.send(SIGCONT);
  }
  ASSERT_TRUE(pipe.read_lines(pipe.lines() + 3));
  run.send(SIGTERM);
  pipe.read_to_end();
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
}

// The weights equal those of a run with that number of steps, to the bit.
TEST_F(Signals, TrainingFinishesTheStepAndWritesItsWeights) {
  for (const auto& [signal, name] : kEach) {
    SCOPED_TRACE(name);
    NamedPipe pipe{path(name)};
    const std::string report = path(name + ".html");
    RunningCommand run{endless({"--strategy", "zero3", "--log", path(name), "--checkpoint",
                                path("c"), "--report", report}),
                       path(name)};
    ASSERT_TRUE(pipe.read_lines(3));
    run.send(signal);
    run.send(signal);  // an echo, as timeout and terminals send it
    pipe.read_to_end();
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.status, 128 + signal) << outcome.err;
    const std::string steps = std::to_string(pipe.lines());
    EXPECT_THAT(outcome.err, HasSubstr(name + ": the run ends after the current step"));
    EXPECT_THAT(outcome.err, HasSubstr("stopped by " + name + " after step " + steps +
                                       " of 1000000000; its weights are in " + path("c") +
                                       "/model.safetensors, and --resume continues from there\n"));
    EXPECT_THAT(outcome.out, HasSubstr("peak memory"));
    EXPECT_THAT(read_file(report), HasSubstr("</html>"));
    EXPECT_EQ(names_in("c"), after(steps));

    RunningCommand whole{training({"--steps", steps, "--checkpoint", path("d")}), path("whole")};
    ASSERT_EQ(whole.wait().status, 0);
    EXPECT_TRUE(read_file(path("c/model.safetensors")) == read_file(path("d/model.safetensors")));
    for (const char* folder : {"c", "d"}) { std::filesystem::remove_all(path(folder)); }
  }
}

TEST_F(Signals, ARunThatIsStoppedEarlyStillShowsAStep) {
  NamedPipe pipe{path("log")};
  pipe.fill();  // the first step waits for the reader
  RunningCommand run{endless({"--log", path("log"), "--trace", path("trace.json")}), path("run")};
  ASSERT_TRUE(wait_until([&] { return run.trains(); }));
  run.send(SIGTERM);
  pipe.read_to_end();
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("without --checkpoint no weights are written"));
  const auto trace = nlohmann::json::parse(read_file(path("trace.json")));
  EXPECT_GT(trace.at("traceEvents").size(), 10U);
}

// The reader is "| head", or a tee that the same signal ended.
TEST_F(Signals, AReaderOfStandardOutputThatLeavesLosesNoWeights) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string gone = "exec 3<>'" + pipe + "' 1>'" + pipe + "' 3<&-; ";
  const Outcome outcome = shell(gone + R"("$0" "$@"; echo "status $?" >&2)",
                                small("train", {"--checkpoint", path("c")}));
  EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output"));
  EXPECT_THAT(outcome.err, HasSubstr("status 1\n"));
  EXPECT_EQ(names_in("c"), after("100"));
}

TEST_F(Signals, ASecondSignalEndsTheRunAtOnceAndAnEchoDoesNot) {
  NamedPipe pipe{path("log")};
  pipe.fill();
  RunningCommand run{endless({"--log", path("log"), "--checkpoint", path("c")}), path("run")};
  ASSERT_TRUE(wait_until([&] { return run.trains(); }));
  const auto begin = Clock::now();
  ASSERT_TRUE(wait_until([&] {
    if (run.has_ended()) { return true; }
    run.send(SIGINT);
    return false;
  }));
  EXPECT_GT(Clock::now() - begin, std::chrono::milliseconds{900});
  EXPECT_EQ(run.wait().status, -SIGINT);
  EXPECT_FALSE(std::filesystem::exists(path("c/model.safetensors")));
}

TEST_F(Signals, NohupKeepsARunFromHangingUp) {
  NamedPipe pipe{path("log")};
  Words words = {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"};
  const Words command = endless({"--log", path("log")});
  words.insert(words.end(), command.begin(), command.end());
  RunningCommand run{words, path("run")};
  ASSERT_TRUE(pipe.read_lines(2));
  run.send(SIGHUP);
  ASSERT_TRUE(pipe.read_lines(pipe.lines() + 20));
  EXPECT_FALSE(run.has_ended());
  run.send(SIGTERM);
  pipe.read_to_end();
  EXPECT_EQ(run.wait().status, 128 + SIGTERM);
}

TEST_F(Signals, AfterTheLastStepASignalStopsNothing) {
  NamedPipe pipe{path("log")};
  pipe.fill();
  RunningCommand run{training({"--steps", "1", "--log", path("log"), "--checkpoint", path("c")}),
                     path("run")};
  ASSERT_TRUE(wait_until([&] { return run.trains(); }));
  run.send(SIGTERM);
  pipe.read_to_end();
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::filesystem::exists(path("c/model.safetensors")));
}

TEST_F(Signals, ComparingEndsAtOnce) {
  Words words = small("compare", {"--steps", "1000000000", "--json", path("out.json")});
  words.insert(words.begin(), kCommand);
  RunningCommand run{words, path("run")};
  ASSERT_TRUE(wait_until([&] { return run.threads() > 3; }));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().status, -SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(path("out.json")));
}

TEST(NotedSignals, AreNotedByTheOutermostAndForgottenWithIt) {
  EXPECT_EQ(tools::NotedSignals::noted(), 0);
  {
    const tools::NotedSignals outer;
    {
      const tools::NotedSignals inner;
      std::raise(SIGTERM);
      EXPECT_EQ(tools::NotedSignals::noted(), SIGTERM);
      std::raise(SIGINT);
    }
    EXPECT_EQ(tools::NotedSignals::noted(), SIGTERM) << "the first";
    bool done = false;
    tools::undisturbed([&] { done = true; });
    EXPECT_TRUE(done);
  }
  EXPECT_EQ(tools::NotedSignals::noted(), 0);
  const tools::NotedSignals later;
  EXPECT_EQ(tools::NotedSignals::noted(), 0);
}

using NotedSignalsDeathTest = CommandTest;

TEST_F(NotedSignalsDeathTest, TakeEffectAfterTheProtectedSection) {
  EXPECT_EXIT(tools::undisturbed([&] {
                std::raise(SIGTERM);
                tools::write_output(path("inner"), "whole");
              }),
              KilledBySignal(SIGTERM), "");
  EXPECT_EQ(read_file(path("inner")), "whole");
}

}  // namespace
}  // namespace tessera::test::signal_test

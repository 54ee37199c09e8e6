// Files that the command writes: whole or not at all, and only its own.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <set>

#include "cli/running_command.hpp"
#include "support/small_files.hpp"

namespace tessera::test::output_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class Outputs : public CommandTest {
 protected:
  [[nodiscard]] Outcome trained(const Words& more) const { return tessera(small("train", more)); }
  [[nodiscard]] Words endless(const Words& more) const {
    Words all = small("train", {"--steps", "1000000000"});
    all.insert(all.begin(), kCommand);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Expects a refusal before the first step, whose text has `parts`.
  void refused(const Words& more, const Words& parts) const {
    SCOPED_TRACE(testing::PrintToString(more));
    const Outcome outcome = trained(more);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "") << "something was started before the refusal";
    for (const std::string& part : parts) { EXPECT_THAT(outcome.err, HasSubstr(part)); }
  }
  [[nodiscard]] std::string step_one_weights() const {
    EXPECT_EQ(trained({"--steps", "1", "--checkpoint", path("expected")}).status, 0);
    return read_file(path("expected/model.safetensors"));
  }
};

/// The files that a run of `steps` steps leaves in its folder.
std::set<std::string> after(const std::string& steps) {
  return {"model.safetensors", "step-" + std::string(8 - steps.size(), '0') + steps};
}

TEST_F(Outputs, WeightsAreNeverWrittenThroughNeighbouringFiles) {
  const std::string expected = step_one_weights();
  const auto saved = [&](const std::string& folder) {
    const Outcome outcome = trained({"--steps", "1", "--checkpoint", path(folder)});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(read_file(path(folder + "/model.safetensors")) == expected);
  };
  fs::create_directory(path("link"));
  fs::create_symlink(path("text.txt"), path("link/model.safetensors.partial"));
  saved("link");
  EXPECT_EQ(read_file(path("text.txt")), text(20'000)) << "the training text was overwritten";
  fs::create_directories(path("folder/model.safetensors.partial"));
  saved("folder");
  fs::create_directory(path("pipe"));
  ASSERT_EQ(::mkfifo(path("pipe/model.safetensors.partial").c_str(), 0600), 0);
  RunningCommand run{
      {kCommand, "train", "--data", path("text.txt"), "--layers", "1", "--hidden", "8", "--heads",
       "2", "--seq", "8", "--steps", "1", "--checkpoint", path("pipe")},
      path("run")};
  EXPECT_EQ(run.wait().status, 0);
}

TEST_F(Outputs, AnUnwritablePathIsRefusedBeforeTheFirstStep) {
  for (const char* name : {"a", "b", "c", "d"}) { fs::create_directory(path(name)); }
  fs::create_directory(path("a/model.safetensors"));
  refused({"--checkpoint", path("a")}, {"--checkpoint", "a/model.safetensors", "is a folder"});
  ASSERT_EQ(::mkfifo(path("b/model.safetensors").c_str(), 0600), 0);
  refused({"--checkpoint", path("b")}, {"--checkpoint", "is a pipe"});
  fs::create_symlink(path("other"), path("c/model.safetensors"));
  refused({"--checkpoint", path("c")}, {"--checkpoint", "is a link"});
  fs::create_symlink(path("other"), path("d/.tessera.lock"));
  refused({"--checkpoint", path("d")}, {"--checkpoint", ".tessera.lock"});
  EXPECT_FALSE(fs::exists(path("other")));
  refused({"--checkpoint", "/dev/null"}, {"--checkpoint: cannot make the folder /dev/null"});
  refused({"--report", folder().string()}, {"--report: cannot write"});
  refused({"--trace", path("no/such/trace.json")}, {"--trace: cannot write"});
  fs::create_symlink(path("text.txt"), path("latest"));
  for (const char* option : {"--log", "--report", "--trace"}) {
    refused({option, path("latest")}, {option});
  }
  fs::create_symlink(path("new"), path("dangling"));
  for (const char* option : {"--log", "--report", "--trace"}) {
    refused({option, path("dangling")}, {option, "is a link"});
  }
  EXPECT_EQ(read_file(path("text.txt")), text(20'000));
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(Outputs, ASecondRunIntoAFolderIsRefusedByNameUntilTheFirstEnds) {
  NamedPipe pipe{path("log")};
  RunningCommand first{endless({"--log", path("log"), "--checkpoint", path("c")}), path("first")};
  ASSERT_TRUE(pipe.read_lines(1));
  fs::create_directory_symlink("c", path("alias"));
  for (const char* name : {"c", "alias"}) {
    refused({"--steps", "1", "--checkpoint", path(name)},
            {"error: --checkpoint: another run writes to " + path(name),
             "process " + std::to_string(first.process()) + " on ", "give another folder"});
  }
  EXPECT_FALSE(fs::exists(path("c/model.safetensors")));
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().status, -SIGKILL);
  EXPECT_EQ(trained({"--steps", "1", "--checkpoint", path("alias")}).status, 0)
      << "the lock dies with its process";
  EXPECT_EQ(names_in("c"), after("1"));
}

TEST_F(Outputs, ARenamedFolderIsMadeAnewAndLockedWhileTheRunTrains) {
  RunningCommand first{endless({"--checkpoint", path("c"), "--log", path("log")}), path("first")};
  ASSERT_TRUE(wait_until([&] { return !log("log").empty(); }));
  fs::rename(path("c"), path("moved"));
  ASSERT_TRUE(wait_until([&] { return !fs::exists(path("moved/.tessera.lock")); }));
  refused({"--steps", "1", "--checkpoint", path("c")},
          {"another run writes to " + path("c"), "process " + std::to_string(first.process())});
  EXPECT_EQ(trained({"--steps", "1", "--checkpoint", path("moved")}).status, 0);
  first.send(SIGTERM);
  const Outcome ended = first.wait();
  EXPECT_EQ(ended.status, 128 + SIGTERM);
  EXPECT_THAT(ended.err, HasSubstr("note: --checkpoint: " + path("c") + " was renamed or removed"));
  EXPECT_EQ(names_in("moved"), after("1"));
  EXPECT_TRUE(fs::exists(path("c/model.safetensors")));
  EXPECT_EQ(names_in("c").size(), 2U);
}

TEST_F(Outputs, ARunWhoseFolderWasRenamedDoesNotSaveIntoThatOfAnotherRun) {
  RunningCommand first{endless({"--checkpoint", path("c"), "--log", path("log")}), path("first")};
  ASSERT_TRUE(wait_until([&] { return !log("log").empty(); }));
  first.send(SIGSTOP);
  const std::string status = "/proc/" + std::to_string(first.process()) + "/status";
  ASSERT_TRUE(wait_until([&] { return read_file(status).find("State:\tT") != std::string::npos; }));
  fs::rename(path("c"), path("moved"));
  RunningCommand second{endless({"--checkpoint", path("c"), "--log", path("log2")}),
                        path("second")};
  ASSERT_TRUE(wait_until([&] { return !log("log2").empty(); }));
  first.send(SIGCONT);
  const Outcome ended = first.wait();
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("another run writes to " + path("c")));
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().status, 128 + SIGTERM);
  EXPECT_TRUE(fs::exists(path("c/model.safetensors")));
}

TEST_F(Outputs, ALogThatAnotherRunWritesIsRefusedAndKept) {
  RunningCommand first{endless({"--log", path("log")}), path("first")};
  ASSERT_TRUE(wait_until([&] { return !log("log").empty(); }));
  refused({"--log", path("log")}, {"--log: another run writes to " + path("log")});
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().status, 128 + SIGTERM);
  const auto lines = log("log");
  for (std::size_t i = 0; i < lines.size(); ++i) { ASSERT_EQ(lines[i].at("step"), i + 1); }
  const std::string before = read_file(path("log"));
  refused({"--log", path("log"), "--checkpoint", "/dev/null"}, {"--checkpoint"});
  EXPECT_EQ(read_file(path("log")), before) << "a refused run takes nothing";
  EXPECT_EQ(trained({"--steps", "1", "--log", path("log")}).status, 0);
  EXPECT_EQ(log("log").size(), 1U);
}

TEST_F(Outputs, AReplacedFileStaysWholeForItsReaders) {
  for (const char* name : {"json", "report"}) {
    write_file(path(name), "of an earlier run");
    fs::create_hard_link(path(name), path(std::string{"kept-"} + name));
  }
  const Outcome outcome = tessera(small("compare", {"--steps", "1", "--strategies", "ddp", "--json",
                                                    path("json"), "--report", path("report")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(read_file(path("json"))).at("ranks"), 3);
  EXPECT_THAT(read_file(path("report")), HasSubstr("</html>"));
  EXPECT_EQ(read_file(path("kept-json")), "of an earlier run");
  EXPECT_EQ(read_file(path("kept-report")), "of an earlier run");
}

TEST_F(Outputs, StreamsAcceptWhatFilesAccept) {
  const Outcome outcome = tessera({"plan", "--json", "/dev/stdout"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(tessera({"plan", "--json", "/dev/null", "--report", "/dev/null"}).status, 0);
  const Outcome full = tessera({"plan", "--json", "/dev/full"});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot write /dev/full: No space left"));
}

TEST_F(Outputs, ALogOnAFullDiskIsReportedOnceAndTheRunContinues) {
  ASSERT_EQ(trained({"--steps", "5", "--checkpoint", path("expected")}).status, 0);
  const Outcome outcome =
      trained({"--steps", "5", "--log", "/dev/full", "--checkpoint", path("c")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err,
            "error: --log: cannot write step 1 to /dev/full: No space left on device; the run "
            "continues without the log\n");
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("step 5/5"), HasSubstr("weights in " + path("c")),
                    HasSubstr("log in /dev/full is incomplete: nothing from step 1 on could be "
                              "written (No space left on device)\n")));
  EXPECT_EQ(names_in("c"), after("5"));
  EXPECT_TRUE(read_file(path("c/model.safetensors")) ==
              read_file(path("expected/model.safetensors")));
}

TEST_F(Outputs, ALogThatMayNotGrowKeepsItsWholeLines) {
  Outcome outcome;
  {
    const SmallFiles limited{3'000};
    outcome = trained({"--steps", "30", "--log", path("log")});
  }
  EXPECT_EQ(outcome.status, 1);
  const auto lines = log("log");  // each is an object
  ASSERT_GT(lines.size(), 3U);
  ASSERT_LT(lines.size(), 30U);
  const std::string next = std::to_string(lines.size() + 1);
  EXPECT_THAT(outcome.err, HasSubstr("--log: cannot write step " + next + " to " + path("log") +
                                     ": File too large"));
  EXPECT_THAT(outcome.out, HasSubstr("nothing from step " + next + " on"));
  EXPECT_THAT(outcome.out, HasSubstr("step 30/30"));
}

TEST_F(Outputs, AReaderOfTheLogMayLeave) {
  NamedPipe pipe{path("log")};
  Words words = small("train", {"--steps", "300", "--log", path("log"), "--checkpoint", path("c")});
  words.insert(words.begin(), kCommand);
  RunningCommand run{words, path("run")};
  ASSERT_TRUE(pipe.read_lines(1));
  pipe.close_reader();
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("Broken pipe"));
  EXPECT_EQ(names_in("c"), after("300"));
}

TEST_F(Outputs, WeightsThatDoNotFitOnDiskLeaveTheOldOnes) {
  const std::string before = step_one_weights();
  Outcome outcome;
  {
    const SmallFiles limited{20'000};
    outcome = trained({"--steps", "2", "--checkpoint", path("expected"), "--resume"});
  }
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("safetensors"), HasSubstr("File too large")));
  EXPECT_TRUE(read_file(path("expected/model.safetensors")) == before);
  EXPECT_EQ(names_in("expected"), after("1"));
}

}  // namespace
}  // namespace tessera::test::output_test

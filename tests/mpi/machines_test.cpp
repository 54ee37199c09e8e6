// The tessera command on two machines without a shared file system.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::mpi_machines_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class MpiMachines : public CommandTest {
 protected:
  MpiMachines() {
    for (const int machine : {0, 1}) { fs::create_directories(path("w" + digit(machine))); }
  }

  [[nodiscard]] Words words_of_train(const std::string& steps,
                                     const std::string& checkpoints) const {
    return {"train",        "--data",     path("text.txt"),
            "--layers",     "1",          "--hidden",
            "16",           "--heads",    "2",
            "--seq",        "16",         "--lr-schedule",
            "constant",     "--strategy", "zero3",
            "--checkpoint", checkpoints,  "--steps",
            steps};
  }
  /// Trains to `steps` with one rank on each machine; each works in a folder of its own.
  [[nodiscard]] Outcome train(const std::string& steps, const Words& more) const {
    const std::string script = "machine=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\ncd " +
                               folder().string() +
                               "/w$machine\nexport TESSERA_MACHINE=m$machine\nexec \"$@\"";
    Words words = {"sh", "-c", script, "sh", test::kCommand};
    for (const std::string& word : words_of_train(steps, "run")) { words.push_back(word); }
    words.insert(words.end(), more.begin(), more.end());
    MpiJob job{2, words};
    const int status = job.wait();
    return {status, job.output(), ""};
  }
  void trained(const std::string& steps, const Words& more) const {
    const Outcome outcome = train(steps, more);
    ASSERT_EQ(outcome.status, 0) << outcome.out;
  }
  [[nodiscard]] std::string part(int machine, const std::string& step, int number) const {
    return path("w" + digit(machine) + "/run/step-0000000" + step + ".part-" + digit(number));
  }
  /// Copies each machine's own part of `step` to the other.
  void exchange(const std::string& step) const {
    for (const int from : {0, 1}) { fs::copy(part(from, step, from), part(1 - from, step, from)); }
  }
  [[nodiscard]] std::set<std::string> names(int machine) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator{path("w" + digit(machine) + "/run")}) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  static std::string digit(int number) { return std::to_string(number); }
};

TEST_F(MpiMachines, TheEndOfARunNamesPartsAndNoWeights) {
  const Outcome outcome = train("2", {});
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("checkpoint of step 2 in run/step-00000002.part-0"),
                    HasSubstr("tessera checkpoint merge"), Not(HasSubstr("model.safetensors"))));
}

TEST_F(MpiMachines, AResumeWithoutTheOtherMachinesPartsIsRefusedAndChangesNothing) {
  trained("2", {});
  exchange("2");
  trained("4", {"--resume", "--log", "log"});
  const auto before = names(0);
  const std::string log = read_file(path("w0/log"));
  const Outcome outcome = train("6", {"--resume", "--log", "log"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("part 1 is missing"), HasSubstr("part 1 is on rank 1"),
                                 HasSubstr("copy the parts of all machines to that folder")));
  EXPECT_EQ(names(0), before);
  EXPECT_EQ(read_file(path("w0/log")), log);
  exchange("4");
  trained("6", {"--resume", "--log", "log"});
}

// The job was killed after one machine had committed its part.
TEST_F(MpiMachines, AStepThatNoMachineHasWholeIsPassedOver) {
  trained("2", {});
  exchange("2");
  trained("4", {"--resume"});
  fs::remove_all(part(1, "4", 1));
  const Outcome outcome = train("3", {"--resume"});
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("part 1 is missing"), HasSubstr("passed over"),
                    HasSubstr("resumed from run/step-00000002"), Not(HasSubstr("damaged"))));
  EXPECT_TRUE(names(0).contains("step-00000004.part-0"));
}

TEST_F(MpiMachines, WeightsOfAnOlderCheckpointLoseTheNameOfTheNewest) {
  Words whole = words_of_train("2", path("w0/run"));
  whole.insert(whole.end(), {"--ranks", "2"});
  ASSERT_EQ(tessera(whole).status, 0);
  fs::copy(path("w0/run"), path("w1/run"), fs::copy_options::recursive);
  for (const int machine : {0, 1}) { ASSERT_TRUE(names(machine).contains("model.safetensors")); }
  trained("4", {"--resume"});
  for (const int machine : {0, 1}) { EXPECT_FALSE(names(machine).contains("model.safetensors")); }
}

}  // namespace
}  // namespace tessera::test::mpi_machines_test

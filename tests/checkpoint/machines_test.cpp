// Parts saved by machines without a shared file system, and joined on load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "checkpoint/forwarding_files.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/save_place.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/toy_job.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/checkpoint/folders.hpp"

namespace tessera::test::machines_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(SavePlace, TheFirstRankOfEachMachineLeads) {
  const checkpoint::SavePlace place = checkpoint::SavePlace::by_machine({"a", "b", "a", "c", "b"});
  EXPECT_EQ(place.parts(), 3);
  const std::vector<int> leaders = {0, 1, 0, 3, 1};
  const std::vector<int> parts = {0, 1, 0, 2, 1};
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(place.leader_of(rank), leaders[static_cast<std::size_t>(rank)]) << rank;
    EXPECT_EQ(place.part_of(rank), parts[static_cast<std::size_t>(rank)]) << rank;
  }
  EXPECT_EQ(checkpoint::SavePlace{4}.parts(), 1);
}

std::string name_of(int machine) {
  return "machine-" + std::to_string(machine);
}

/// Options of a rank on machine `machine`, whose disk is a separate folder.
checkpoint::Saver::Options on_machine(const fs::path& disks, int machine,
                                      checkpoint::SaveMode mode) {
  return {.folder = disks / name_of(machine),
          .save = {.shard_bytes = 9'000},
          .mode = mode,
          .keep = checkpoint::Retention{.last = 1}};
}

/// Does not remove the weights of an earlier save.
class KeptWeights final : public FilesOf {
 public:
  using FilesOf::FilesOf;
  void remove_all(const fs::path& path) override {
    if (path.filename() == "model.safetensors") { throw Error{path.string() + " stays"}; }
    FilesOf::remove_all(path);
  }
};

TEST(MachinesOfAJob, AllLearnThatOneMachineKeepsOlderWeights) {
  const TemporaryFolder folder;
  fs::create_directories(folder / name_of(1));
  folder.write(name_of(1) + "/model.safetensors", "older");
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    const int machine = world.rank() / 3;
    KeptWeights files{machine};
    checkpoint::Saver saver{trainer.model(),
                            on_machine(folder.path(), machine, checkpoint::SaveMode::synchronous),
                            files};
    trainer.step();
    saver.begin({});
    saver.finish();
    EXPECT_THAT(saver.newest().warning, HasSubstr(name_of(1) + "/model.safetensors stays"));
    told += 1;
  });
  EXPECT_EQ(told, 4);
}

/// Copies the contents of the ranks' disks to one folder.
void gather_parts(const fs::path& disks, const fs::path& to) {
  fs::create_directories(to);
  for (const fs::directory_entry& disk : fs::directory_iterator{disks}) {
    for (const fs::directory_entry& part : fs::directory_iterator{disk}) {
      fs::copy(part, to / part.path().filename(), fs::copy_options::recursive);
    }
  }
}

class Machines : public testing::TestWithParam<std::pair<std::string, ToyJob>> {};
INSTANTIATE_TEST_SUITE_P(All, Machines, testing::ValuesIn(state_formats()),
                         [](const auto& tested) { return tested.param.first; });

TEST_P(Machines, SavePartsThatLoadAsOneCheckpoint) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3, Strategy::hybrid}) {
    const TemporaryFolder folder;
    const ToyJob job = GetParam().second.under(strategy);
    const fs::path whole = train_and_save(job, 3, folder / "shared");
    run_job(job, [&](World& world, ToyTrainer& trainer) {
      const int machine = world.rank() / 3;  // 0 0 0 1
      const checkpoint::SaveMode mode = strategy == Strategy::ddp
                                            ? checkpoint::SaveMode::synchronous
                                            : checkpoint::SaveMode::asynchronous;
      FilesOf files{machine};
      checkpoint::Saver saver{trainer.model(), on_machine(folder / "disks", machine, mode), files};
      for (int step = 1; step <= 3; ++step) {
        trainer.step();
        saver.begin({});
        saver.finish();
      }
      const fs::path part = folder / "disks" / ("machine-" + std::to_string(machine)) /
                            ("step-00000003.part-" + std::to_string(machine));
      EXPECT_EQ(saver.newest().path, part);
      EXPECT_EQ(saver.newest().step, 3);
      EXPECT_NO_THROW(verify_part(part));
    });
    gather_parts(folder / "disks", folder / "gathered");
    EXPECT_EQ(std::distance(fs::directory_iterator{folder / "gathered"}, {}), 2)
        << "kept: the last";
    const fs::path again = load_and_save(job, folder / "gathered/step-00000003", folder / "again");
    EXPECT_EQ(difference(whole, again), "") << to_string(strategy);
    fs::remove_all(folder / "gathered/step-00000003.part-1");
    EXPECT_THAT(message_of<FormatError>([&] {
                  load_and_save(job, folder / "gathered/step-00000003", folder / "lost");
                }),
                HasSubstr("part"));
  }
}

TEST(MachinesOfAJob, ARankThatLacksItsMachinesFolderIsNamedAndNothingIsLeft) {
  const TemporaryFolder folder;
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    trainer.step();
    checkpoint::Saver::Options options =
        on_machine(folder / "disks", 0, checkpoint::SaveMode::synchronous);
    if (world.rank() == 2) { options.folder = folder / "elsewhere"; }
    FilesOf files{0};
    checkpoint::Saver saver{trainer.model(), options, files};
    for (const auto& call : {std::function<void()>{[&] { saver.rehearse(); }},
                             std::function<void()>{[&] { saver.begin({}); }}}) {
      EXPECT_THAT(message_of<Error>(call), AllOf(HasSubstr("rank 2"), HasSubstr("same machine")));
    }
    told += 1;
  });
  EXPECT_EQ(told, 4);
  EXPECT_TRUE(fs::is_empty(folder / "disks/machine-0"));
  EXPECT_FALSE(fs::exists(folder / "elsewhere"));
}

/// A disk with room for `free` bytes, as far as it says.
class DiskOf final : public ForwardingFiles {
 public:
  explicit DiskOf(std::uint64_t free) : free_{free} {}
  std::optional<std::uint64_t> free_bytes(const fs::path& /*folder*/) override { return free_; }

 private:
  std::uint64_t free_;
};

TEST(MachinesOfAJob, ARehearsalWarnsAllRanksOfTooLittleRoom) {
  const TemporaryFolder folder;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    trainer.step();
    const auto warning = [&](std::uint64_t free) {
      DiskOf files{world.rank() == 0 ? free : 0};  // the others write into the same folder
      checkpoint::Saver saver{trainer.model(), {.folder = folder / "run"}, files};
      saver.rehearse();
      EXPECT_EQ(saver.newest().path, "");
      const std::string before = saver.newest().warning;
      saver.begin({});
      EXPECT_EQ(saver.newest().warning, "") << "it was written";
      return before;
    };
    EXPECT_THAT(warning(1000), AllOf(HasSubstr((folder / "run").string() + " has 1000 B of free"),
                                     HasSubstr("free some space")));
    EXPECT_EQ(warning(1'000'000), "");
  });
}

}  // namespace
}  // namespace tessera::test::machines_test

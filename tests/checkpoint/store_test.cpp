#include "checkpoint/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/forwarding_files.hpp"
#include "checkpoint/saved_checkpoint.hpp"
#include "checkpoint/step_folders.hpp"
#include "support/small_files.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera::store_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::SavedCheckpoint;
using test::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::set<std::string>;
using Steps = std::vector<std::int64_t>;

/// Tests in the folder of a run, without power cuts.
class Store : public testing::Test {
 protected:
  checkpoint::CheckpointStore::Committed save(std::int64_t step) {
    return test::save_step(store_, files_, step);
  }

  [[nodiscard]] Steps steps() const {
    Steps steps;
    for (const auto& entry : store_.list()) { steps.push_back(entry.step); }
    return steps;
  }

  [[nodiscard]] std::string refusal_of_a_save(std::int64_t step) {
    return message_of<Error>([&] { save(step); });
  }

  [[nodiscard]] std::string refusal_to_resume() const {
    return message_of<Error>([&] { (void)newest_checkpoint(run_); });
  }

  void flip_a_byte(const fs::path& path, std::uint64_t at) const {
    std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_ / "a/run";
  checkpoint::FileSystem& files_ = checkpoint::system_files();
  checkpoint::CheckpointStore store_{run_, files_};
};

std::string text_of(const fs::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

TEST_F(Store, ASaveExistsFromItsCommitOn) {
  const SavedCheckpoint checkpoint{12};
  const fs::path partial = store_.begin(12);
  checkpoint.write_files(files_, partial);
  EXPECT_EQ(steps(), Steps{});
  const auto committed = store_.commit(partial, checkpoint.manifest(), "by a test");
  EXPECT_EQ(steps(), Steps{12});
  EXPECT_EQ(committed.folder, run_ / "step-00000012");
  EXPECT_EQ(committed.no_weights, "");
  checkpoint.check(committed.folder);
  EXPECT_EQ(text_of(committed.folder / "provenance.json"), "by a test");
  EXPECT_EQ(
      checkpoint::names_in(committed.folder),
      (Names{"manifest.json", "model.safetensors", "optimizer.safetensors", "provenance.json"}));
  EXPECT_EQ(checkpoint::names_in(run_), (Names{"model.safetensors", "step-00000012"}));
}

TEST_F(Store, StepsAreInOrderHoweverManyDigitsTheyHave) {
  for (const std::int64_t step : {200'000'000, 3, 99'999'999, 0}) { save(step); }
  EXPECT_EQ(steps(), (Steps{0, 3, 99'999'999, 200'000'000}));
  EXPECT_EQ(newest_checkpoint(run_).step, 200'000'000);
  // Folders with other names are not steps.
  for (const char* const name : {"step-3", "step-0000000x", "step-", "step-00000003.old"}) {
    fs::copy(run_ / "step-00000003", run_ / name);
  }
  EXPECT_EQ(steps().size(), 4U);
}

TEST_F(Store, AStepThatIsSavedAgainIsReplaced) {
  const SavedCheckpoint checkpoint{5};
  for (const char* const provenance : {"first", "second"}) {
    const fs::path partial = store_.begin(5);
    checkpoint.write_files(files_, partial);
    store_.commit(partial, checkpoint.manifest(), provenance);
  }
  EXPECT_EQ(text_of(run_ / "step-00000005/provenance.json"), "second");
  EXPECT_EQ(checkpoint::names_in(run_), (Names{"model.safetensors", "step-00000005"}));
}

TEST_F(Store, WeightsAlsoStandInTheRunsFolder) {
  save(1);
  const auto committed = save(2);
  EXPECT_TRUE(fs::equivalent(run_ / "model.safetensors", committed.folder / "model.safetensors"));
  // Weights in several files are not linked there, and older weights would look like the newest.
  const SavedCheckpoint parted{3, 1};
  const fs::path partial = store_.begin(3);
  parted.write_files(files_, partial);
  EXPECT_EQ(store_.commit(partial, parted.manifest(), "{}").no_weights, "");
  parted.check(run_ / "step-00000003");
  EXPECT_FALSE(fs::exists(run_ / "model.safetensors"));
}

TEST_F(Store, TheWeightsInTheRunsFolderAreTheNewestCheckpointsAfterAnOlderCommit) {
  const auto newest = save(5);
  for (const std::int64_t step : {4, 5, 1}) {  // as of a merge
    save(step);
    EXPECT_TRUE(fs::equivalent(run_ / "model.safetensors", newest.folder / "model.safetensors"));
  }
  const SavedCheckpoint parted{6, 1};
  const fs::path partial = store_.begin(6);
  parted.write_files(files_, partial);
  store_.commit(partial, parted.manifest(), "{}");
  save(3);
  EXPECT_FALSE(fs::exists(run_ / "model.safetensors"));
}

TEST_F(Store, ALinkInPlaceOfTheWeightsStaysAndTheCommitSaysSo) {
  save(1);
  fs::remove(run_ / "model.safetensors");
  folder_.write("own", "a user's");
  fs::create_symlink(folder_ / "own", run_ / "model.safetensors");
  const auto committed = save(2);
  EXPECT_THAT(committed.no_weights,
              AllOf(HasSubstr((run_ / "model.safetensors").string()), HasSubstr("not a file")));
  EXPECT_EQ(text_of(folder_ / "own"), "a user's");
  EXPECT_EQ(newest_checkpoint(run_).step, 2);
  EXPECT_EQ(checkpoint::names_in(run_),
            (Names{"model.safetensors", "step-00000001", "step-00000002"}));
}

TEST_F(Store, KeepsTheLastOnesAndMultiples) {
  const struct {
    checkpoint::Retention keep;
    Steps kept;
  } cases[] = {
      {{.last = 0}, {1, 2, 3, 4, 5, 6, 7}},
      {{.last = 7}, {1, 2, 3, 4, 5, 6, 7}},
      {{.last = 3, .every = 3}, {3, 5, 6, 7}},
      {{.last = 2}, {6, 7}},
      {{.last = 1}, {7}},
  };
  for (std::int64_t step = 1; step <= 7; ++step) { save(step); }
  for (const auto& one : cases) {
    fs::remove_all(folder_ / "copy");
    fs::copy(run_, folder_ / "copy", fs::copy_options::recursive);
    checkpoint::CheckpointStore store{folder_ / "copy", files_};
    store.retain(one.keep);
    Names kept{"model.safetensors"};
    for (const std::int64_t step : one.kept) { kept.insert(checkpoint::step_name(step)); }
    EXPECT_EQ(checkpoint::names_in(folder_ / "copy"), kept);
  }
  EXPECT_THROW(store_.retain({.last = -1}), ContractError);
}

TEST_F(Store, KeepsWhatItHasCommittedBesideLaterStepsOfAnEarlierRun) {
  for (const std::int64_t step : {7, 8, 9}) { save(step); }
  checkpoint::CheckpointStore store{run_, files_};
  test::save_step(store, files_, 4);
  store.retain({.last = 1});
  EXPECT_EQ(steps(), (Steps{4, 9}));
}

TEST_F(Store, RemovesNothingWhileTheNewestIsDamaged) {
  for (const std::int64_t step : {1, 2, 3}) { save(step); }
  const fs::path weights = run_ / "step-00000003/model.safetensors";
  flip_a_byte(weights, fs::file_size(weights) - 1);
  EXPECT_THAT(message_of<FormatError>([&] { store_.retain({.last = 1}); }),
              HasSubstr(weights.string()));
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
}

/// Starts a save in a separate process, which lives until `body` ends and is then killed.
void beside_a_save(const fs::path& run, const std::function<void()>& body) {
  int begun[2]{};
  ASSERT_EQ(::pipe(begun), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    checkpoint::CheckpointStore store{run, checkpoint::system_files()};
    SavedCheckpoint{9}.write_files(checkpoint::system_files(), store.begin(9));
    if (::write(begun[1], "+", 1) != 1) { ::_exit(1); }
    for (;;) { ::pause(); }
  }
  char told = 0;
  ASSERT_EQ(::read(begun[0], &told, 1), 1);
  body();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : begun) { ::close(end); }
}

/// Names of the folders of unfinished saves.
Names partials_in(const fs::path& run) {
  Names partials;
  for (const std::string& name : checkpoint::names_in(run)) {
    if (checkpoint::is_hidden(name, checkpoint::kStepPrefix, checkpoint::kPartialEnd)) {
      partials.insert(name);
    }
  }
  return partials;
}

TEST_F(Store, ALivingSaveIsKeptAndADeadOneRemoved) {
  fs::create_directories(run_);
  beside_a_save(run_, [&] {
    save(1);
    EXPECT_EQ(partials_in(run_).size(), 1U);
  });
  EXPECT_EQ(partials_in(run_).size(), 1U) << "what was killed leaves its folder";
  save(2);
  EXPECT_EQ(partials_in(run_), Names{});
}

TEST_F(Store, ASaveOfAnotherMachineIsRemovedOnceItIsOld) {
  fs::create_directories(run_);
  ASSERT_EQ(::setenv("TESSERA_MACHINE", "another", 1), 0);
  beside_a_save(run_, [] {});
  ::unsetenv("TESSERA_MACHINE");
  save(1);
  ASSERT_EQ(partials_in(run_).size(), 1U) << "its locks may not be seen here";
  const fs::path left = run_ / *partials_in(run_).begin();
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours{2};
  for (const auto& entry : fs::directory_iterator{left}) { fs::last_write_time(entry, old); }
  fs::last_write_time(left, old);
  save(2);
  EXPECT_EQ(partials_in(run_), Names{});
}

TEST_F(Store, AnAbandonedSaveLeavesNothing) {
  SavedCheckpoint{1}.write_files(files_, store_.begin(1));
  store_.abandon();
  EXPECT_EQ(checkpoint::names_in(run_), Names{});
  const fs::path partial = store_.begin(2);
  EXPECT_THROW(store_.commit(partial, SavedCheckpoint{1}.manifest(), ""), ContractError);
  EXPECT_THROW(store_.commit(run_ / "x", SavedCheckpoint{2}.manifest(), ""), ContractError);
}

TEST_F(Store, AnUnwritableFileIsNamedAndOldFilesStay) {
  folder_.write("a/run", "a file");
  EXPECT_THAT(refusal_of_a_save(1), AllOf(HasSubstr(run_.string()), HasSubstr("Not a directory")));
  EXPECT_EQ(text_of(run_), "a file");
  fs::remove(run_);
  fs::create_symlink("nowhere", run_);
  EXPECT_THAT(refusal_of_a_save(1), HasSubstr(run_.string()));
  EXPECT_TRUE(fs::is_symlink(run_));
  fs::remove(run_);
  folder_.write("a/run/step-00000001/notes", "a user's");
  EXPECT_THAT(refusal_of_a_save(1),
              AllOf(HasSubstr((run_ / "step-00000001").string()), HasSubstr("is not a checkpoint"),
                    HasSubstr("remove it")));
  EXPECT_EQ(text_of(run_ / "step-00000001/notes"), "a user's");
  EXPECT_EQ(checkpoint::names_in(run_), Names{"step-00000001"});
}

TEST_F(Store, AFileThatCannotGrowEndsASaveAlone) {
  save(1);
  {
    const test::SmallFiles small{1024};
    EXPECT_THAT(refusal_of_a_save(2), AllOf(HasSubstr(run_.string()), HasSubstr(".safetensors"),
                                            HasSubstr("File too large")));
  }
  EXPECT_EQ(newest_checkpoint(run_).step, 1);
  save(3);
  EXPECT_EQ(checkpoint::names_in(run_),
            (Names{"model.safetensors", "step-00000001", "step-00000003"}));
}

/// A disk that has no room for files of `full`, and no hard links.
class DiskFullFor final : public test::ForwardingFiles {
 public:
  explicit DiskFullFor(std::string full) : full_{std::move(full)} {}
  bool link(const fs::path& /*from*/, const fs::path& /*to*/) override { return false; }
  std::unique_ptr<checkpoint::FileClaim> claim(const fs::path& path) override {
    require_room(path);
    return system_.claim(path);
  }
  std::unique_ptr<checkpoint::WritableFile> open(const fs::path& path,
                                                 std::uint64_t bytes) override {
    auto file = system_.open(path, bytes);
    require_room(path);
    return file;
  }

 private:
  void require_room(const fs::path& path) const {
    if (path.filename().string().find(full_) != std::string::npos) { throw Error{"disk full"}; }
  }

  std::string full_;
};

TEST_F(Store, WhatAFullDiskStopsLeavesNothing) {
  DiskFullFor claims{std::string{checkpoint::kManifestName}};
  EXPECT_THROW((void)checkpoint::CheckpointStore(run_, claims).begin(1), Error);
  EXPECT_EQ(checkpoint::names_in(run_), Names{});
  DiskFullFor copies{".model.safetensors."};
  checkpoint::CheckpointStore store{run_, copies};
  EXPECT_EQ(test::save_step(store, copies, 2).no_weights, "disk full");
  EXPECT_EQ(checkpoint::names_in(run_), Names{"step-00000002"});
}

/// Runs the process as the user nobody in its lifetime, because root may write everywhere.
class AsAnotherUser {
 public:
  explicit AsAnotherUser(const fs::path& own) : changed_{::geteuid() == 0} {
    if (!changed_) { return; }
    fs::permissions(own, fs::perms{0711});
    EXPECT_EQ(::chown((own / "a").c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(::chown((own / "a/run").c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(::seteuid(kNobody), 0);
  }
  AsAnotherUser(const AsAnotherUser&) = delete;
  AsAnotherUser& operator=(const AsAnotherUser&) = delete;
  ~AsAnotherUser() {
    if (changed_) { EXPECT_EQ(::seteuid(0), 0); }
  }

 private:
  static constexpr uid_t kNobody = 65534;
  bool changed_;
};

TEST_F(Store, AFolderWithoutPermissionIsNamed) {
  save(1);
  const AsAnotherUser user{folder_.path()};
  fs::permissions(run_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(refusal_of_a_save(2), AllOf(HasSubstr(run_.string()), HasSubstr("denied")));
  EXPECT_EQ(newest_checkpoint(run_).step, 1);
  fs::permissions(run_, fs::perms::none);
  EXPECT_THAT(refusal_of_a_save(2), AllOf(HasSubstr(run_.string()), HasSubstr("denied")));
  EXPECT_THAT(refusal_to_resume(), AllOf(HasSubstr(run_.string()), HasSubstr("denied")));
  fs::permissions(run_, fs::perms::owner_all);
}

TEST_F(Store, TheFolderOfARunMayBeALink) {
  fs::create_directories(folder_ / "disk");
  fs::create_directories(run_.parent_path());
  fs::create_directory_symlink(folder_ / "disk", run_);
  save(1);
  EXPECT_EQ(checkpoint::names_in(folder_ / "disk"), (Names{"model.safetensors", "step-00000001"}));
  EXPECT_EQ(newest_checkpoint(run_).step, 1);
}

TEST_F(Store, ALinkAmongTheFilesOfASaveIsNotFollowed) {
  folder_.write("own", "a user's");
  const fs::path partial = store_.begin(1);
  fs::create_symlink(folder_ / "own", partial / "model.safetensors");
  EXPECT_THROW(SavedCheckpoint{1}.write_files(files_, partial), Error);
  EXPECT_EQ(text_of(folder_ / "own"), "a user's");
}

TEST_F(Store, ResumingNamesNewerOnesThatAreDamaged) {
  const struct {
    const char* what;
    std::function<void(const fs::path& step)> damage;
    const char* named;
  } cases[] = {
      {"no manifest", [](const fs::path& step) { fs::remove(step / "manifest.json"); },
       "manifest.json"},
      {"a manifest cut off",
       [](const fs::path& step) { fs::resize_file(step / "manifest.json", 99); }, "manifest.json"},
      {"no file", [](const fs::path& step) { fs::remove(step / "optimizer.safetensors"); },
       "optimizer.safetensors"},
      {"a file cut off",
       [](const fs::path& step) { fs::resize_file(step / "model.safetensors", 1000); },
       "model.safetensors"},
      {"another step's",
       [this](const fs::path& step) {
         fs::remove_all(step);
         fs::copy(run_ / "step-00000001", step);
       },
       "step-00000003"},
  };
  save(1);
  save(2);
  for (const auto& one : cases) {
    SCOPED_TRACE(one.what);
    one.damage(save(3).folder);
    const NewestCheckpoint newest = newest_checkpoint(run_);
    EXPECT_EQ(newest.step, 2);
    EXPECT_EQ(newest.path, run_ / "step-00000002");
    EXPECT_THAT(newest.damaged,
                ElementsAre(AllOf(HasSubstr("step-00000003"), HasSubstr(one.named))));
    save(3);
    EXPECT_EQ(newest_checkpoint(run_).step, 3) << "it cannot be saved again";
  }
}

TEST_F(Store, ResumingWithoutAWholeCheckpointListsWhatExists) {
  EXPECT_THAT(refusal_to_resume(), AllOf(HasSubstr(run_.string()), HasSubstr("does not exist")));
  folder_.write("a/run", "a file");
  EXPECT_THAT(refusal_to_resume(), AllOf(HasSubstr(run_.string()), HasSubstr("a file")));
  fs::remove(run_);
  fs::create_directory(run_);
  EXPECT_THAT(refusal_to_resume(), AllOf(HasSubstr(run_.string()), HasSubstr("it has none"),
                                         HasSubstr("begin a new run")));
  SavedCheckpoint{1}.write_files(files_, store_.begin(1));
  EXPECT_THAT(refusal_to_resume(), AllOf(HasSubstr("killed"), HasSubstr(".step-00000001.")));
  const fs::path step = save(4).folder;
  EXPECT_THAT(message_of<Error>([&] { (void)newest_checkpoint(step); }),
              AllOf(HasSubstr("is a single checkpoint"), HasSubstr("(" + run_.string() + ")")));
  fs::remove(step / "model.safetensors");
  EXPECT_THAT(message_of<FormatError>([&] { (void)newest_checkpoint(run_); }),
              AllOf(HasSubstr("damaged"), HasSubstr((step / "model.safetensors").string())));
}

}  // namespace
}  // namespace tessera::store_test

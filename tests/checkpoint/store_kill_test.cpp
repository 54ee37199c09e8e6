// Stops a save, and the removal of old checkpoints, at each of their calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/saved_checkpoint.hpp"
#include "checkpoint/step_folders.hpp"
#include "checkpoint/stopping_files.hpp"
#include "checkpoint/store.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::store_kill_test {
namespace {

namespace fs = std::filesystem;
using test::SavedCheckpoint;
using test::StoppingFiles;
using Effect = StoppingFiles::Effect;
using Names = std::set<std::string>;

constexpr checkpoint::Retention kKeep{.last = 2};

/// Fails as on a full disk.
void full_disk(const fs::path& path) {
  throw Error("cannot write " + path.string() + ": No space left on device");
}
void kill_process(const fs::path&) {
  ::kill(::getpid(), SIGKILL);
}

void save(checkpoint::CheckpointStore& store, checkpoint::FileSystem& files, std::int64_t step) {
  test::save_step(store, files, step);
  store.retain(kKeep);
}

/// What must hold in `folder` at any time once steps 1 and 2 exist.
void check_folder(const fs::path& folder) {
  const NewestCheckpoint newest = newest_checkpoint(folder);
  EXPECT_GE(newest.step, 2);
  EXPECT_EQ(newest.damaged, std::vector<std::string>{});
  std::set<std::int64_t> steps;
  for (const auto& entry : checkpoint::CheckpointStore{folder, checkpoint::system_files()}.list()) {
    EXPECT_NO_THROW(SavedCheckpoint{entry.step}.check(entry.folder));
    steps.insert(entry.step);
  }
  EXPECT_EQ(steps.count(newest.step), 1U);
  EXPECT_EQ(steps.count(newest.step - 1), 1U) << "the one before the newest is lost";
  EXPECT_EQ(SafetensorsReader{folder / "model.safetensors"}.entries().size(), 2U);
}

/// Runs in a separate process; returns how it ended.
int end_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Under a sanitizer some of the calls suffice.
constexpr int kCallsApart = TESSERA_SANITIZED ? 7 : 1;

/// After saves of steps 1 and 2, stops the save of step GetParam() at a call.
class StoppedSave : public testing::TestWithParam<std::int64_t> {
 protected:
  StoppedSave() {
    StoppingFiles files{StoppingFiles::kNever, Effect::none, full_disk};
    checkpoint::CheckpointStore store{before_, files};
    for (const std::int64_t step : {1, 2}) { save(store, files, step); }
  }

  /// A fresh copy of the folder.
  fs::path copy() {
    fs::remove_all(run_);
    fs::copy(before_, run_, fs::copy_options::recursive);
    return run_;
  }

  int calls_of_a_save() {
    StoppingFiles files{StoppingFiles::kNever, Effect::none, full_disk};
    checkpoint::CheckpointStore store{copy(), files};
    save(store, files, GetParam());
    return files.calls();
  }

  /// Expects the next save to succeed and to leave only the checkpoints to keep.
  void check_next_save(checkpoint::CheckpointStore& store, checkpoint::FileSystem& files) {
    check_folder(run_);
    const std::int64_t newest = newest_checkpoint(run_).step;
    save(store, files, newest + 1);
    check_folder(run_);
    EXPECT_EQ(checkpoint::names_in(run_),
              (Names{checkpoint::step_name(newest), checkpoint::step_name(newest + 1),
                     "model.safetensors"}));
  }

  test::TemporaryFolder folder_;
  fs::path before_ = folder_ / "before";
  fs::path run_ = folder_ / "run";
};
INSTANTIATE_TEST_SUITE_P(Steps, StoppedSave, testing::Values(2, 3),
                         [](const auto& step) { return step.param == 2 ? "SavedAgain" : "Next"; });

TEST_P(StoppedSave, AFullDiskAtAnyCallLosesNoCheckpoint) {
  const int calls = calls_of_a_save();
  ASSERT_GT(calls, 30);
  for (int stop = 1; stop <= calls; stop += kCallsApart) {
    for (const Effect effect : {Effect::none, Effect::half, Effect::whole}) {
      SCOPED_TRACE(testing::Message() << "call " << stop << ", effect " << int(effect));
      StoppingFiles files{stop, effect, full_disk};
      checkpoint::CheckpointStore store{copy(), files};
      try {
        save(store, files, GetParam());
      } catch (const Error& error) { EXPECT_THAT(error.what(), testing::HasSubstr(run_.string())); }
      files.go_on();
      check_next_save(store, files);
    }
  }
}

TEST_P(StoppedSave, AKillAtAnyCallLosesNoCheckpoint) {
  const int calls = calls_of_a_save();
  for (int stop = 1; stop <= calls; stop += kCallsApart) {
    for (const Effect effect : {Effect::none, Effect::half}) {
      SCOPED_TRACE(testing::Message() << "call " << stop << ", effect " << int(effect));
      copy();
      const int status = end_of([&] {
        StoppingFiles files{stop, effect, kill_process};
        checkpoint::CheckpointStore store{run_, files};
        save(store, files, GetParam());
      });
      EXPECT_TRUE(WIFSIGNALED(status)) << status;
      StoppingFiles files{StoppingFiles::kNever, Effect::none, full_disk};
      checkpoint::CheckpointStore store{run_, files};
      check_next_save(store, files);
    }
  }
}

}  // namespace
}  // namespace tessera::store_kill_test

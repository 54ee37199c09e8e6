// Saves to a disk that loses unflushed data, with a power cut after each call.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/power_cuts.hpp"
#include "checkpoint/saved_checkpoint.hpp"
#include "checkpoint/stopping_files.hpp"
#include "checkpoint/store.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::store_power_test {
namespace {

namespace fs = std::filesystem;
using test::PowerCuts;
using test::SavedCheckpoint;
using test::StoppingFiles;
using Unflushed = PowerCuts::Unflushed;

constexpr checkpoint::Retention kKeep{.last = 2};
// Under a sanitizer some of the cuts suffice.
constexpr std::uint32_t kCutsApart = TESSERA_SANITIZED ? 11 : 1;

/// How weights get into the run's folder.
enum class Weights { linked, copied, in_several_files };

/// After each call, checks the run's folder as each kind of power cut leaves it.
class CutPower : public testing::TestWithParam<Weights> {
 protected:
  CutPower() {
    fs::create_directory(disk_);
    files_.has_links = GetParam() != Weights::copied;
    files_.cut = [this] { check_cuts(); };
  }

  void save(std::int64_t step) {
    const std::uint64_t most = GetParam() == Weights::in_several_files ? 1 : UINT64_MAX;
    test::save(store_, files_, SavedCheckpoint{step, most});
    committed_ = step;
    store_.retain(kKeep);
  }

  void check_cuts() {
    ++cuts_;
    if (cuts_ % kCutsApart != 0) { return; }
    for (const Unflushed kind :
         {Unflushed::nothing, Unflushed::names, Unflushed::contents, Unflushed::last_name}) {
      check_cut(kind, 0);
    }
    for (std::uint32_t seed = 0; seed < 2; ++seed) { check_cut(Unflushed::some, cuts_ * 2 + seed); }
  }

  void check_cut(Unflushed kind, std::uint32_t seed) {
    SCOPED_TRACE(testing::Message() << "call " << cuts_ << ", kind " << int(kind) << ", seed "
                                    << seed << ", newest committed " << committed_);
    const fs::path left = folder_ / "left";
    fs::remove_all(left);
    files_.leave(left, kind, seed);
    const std::int64_t newest = check_newest(left / "run");
    if (newest > 0) { check_all(left / "run", newest); }
    if (kind == Unflushed::some) { check_next_save(left / "run", newest); }
  }

  /// 0 if there is none yet.
  [[nodiscard]] std::int64_t check_newest(const fs::path& run) const {
    try {
      const NewestCheckpoint newest = newest_checkpoint(run);
      EXPECT_GE(newest.step, committed_);
      EXPECT_EQ(newest.damaged, std::vector<std::string>{});
      return newest.step;
    } catch (const Error& error) {
      EXPECT_EQ(committed_, 0) << error.what();
      return 0;
    }
  }

  static void check_all(const fs::path& run, std::int64_t newest) {
    std::set<std::int64_t> steps;
    for (const auto& entry : checkpoint::CheckpointStore{run, checkpoint::system_files()}.list()) {
      EXPECT_NO_THROW(SavedCheckpoint{entry.step}.check(entry.folder));
      steps.insert(entry.step);
    }
    EXPECT_EQ(steps.count(newest), 1U);
    EXPECT_EQ(steps.count(newest - 1), newest > 1 ? 1U : 0U) << "the one before is lost";
    if (fs::exists(run / "model.safetensors")) {
      EXPECT_EQ(SafetensorsReader{run / "model.safetensors"}.entries().size(), 2U);
    }
  }

  static void check_next_save(const fs::path& run, std::int64_t newest) {
    StoppingFiles files{StoppingFiles::kNever, StoppingFiles::Effect::none, {}};
    checkpoint::CheckpointStore store{run, files};
    test::save_step(store, files, newest + 1);
    EXPECT_EQ(newest_checkpoint(run).step, newest + 1);
  }

  test::TemporaryFolder folder_;
  fs::path disk_ = folder_ / "disk";
  PowerCuts files_{disk_};
  checkpoint::CheckpointStore store_{disk_ / "run", files_};
  std::int64_t committed_ = 0;
  std::uint32_t cuts_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Runs, CutPower,
                         testing::Values(Weights::linked, Weights::copied,
                                         Weights::in_several_files),
                         [](const auto& run) -> std::string {
                           if (run.param == Weights::linked) { return "Linked"; }
                           return run.param == Weights::copied ? "Copied" : "InSeveralFiles";
                         });

TEST_P(CutPower, LosesNoCommittedCheckpoint) {
  for (const std::int64_t step : {1, 2, 2, 3}) { save(step); }
  EXPECT_GT(cuts_, 100U);
}

}  // namespace
}  // namespace tessera::store_power_test

// Saves during training: their bytes, the order of events, and disks that fail.
#include "tessera/checkpoint/checkpointer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "checkpoint/forwarding_files.hpp"
#include "checkpoint/save_schedule.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/toy_job.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::checkpointer_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> folders_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    if (entry.is_directory()) { names.push_back(entry.path().filename().string()); }
  }
  std::ranges::sort(names);
  return names;
}

ToyJob delayed(const ToyJob& job) {
  ToyJob late = job;
  late.world.testing.delays = DelayInjection{.seed = 7, .longest = std::chrono::microseconds{300}};
  return late;
}

class AsynchronousSave : public testing::TestWithParam<std::pair<std::string, ToyJob>> {};
INSTANTIATE_TEST_SUITE_P(All, AsynchronousSave, testing::ValuesIn(state_formats()),
                         [](const auto& tested) { return tested.param.first; });

TEST_P(AsynchronousSave, WritesTheBytesOfASynchronousSaveWhileTrainingContinues) {
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero3, Strategy::hybrid}) {
    const TemporaryFolder folder;
    const ToyJob job = delayed(GetParam().second.under(strategy));
    run_job(job, [&](World& world, ToyTrainer& trainer) {
      Checkpointer checkpointer{trainer.model(), {.folder = folder / "async", .every = 2}};
      for (int step = 1; step <= 6; ++step) {
        trainer.step();
        if (step == 4) { save(trainer.model(), folder / "sync"); }
        checkpointer.after_step({});
        if (step % 2 == 1) { checkpointer.finish(); }
      }
      checkpointer.finish();
      if (world.rank() != 0) { return; }
      EXPECT_EQ(difference(folder / "sync/step-00000004", folder / "async/step-00000004"), "");
      EXPECT_EQ(checkpointer.newest(), folder / "async/step-00000006");
    });
  }
}

// Copies overlap the next step. Injected delays expose an update that does not wait for them.
class OffloadedCheckpointer : public ::testing::TestWithParam<Offload> {};
INSTANTIATE_TEST_SUITE_P(Ways, OffloadedCheckpointer,
                         ::testing::Values(Offload::optimizer, Offload::state));

TEST_P(OffloadedCheckpointer, UpdatesWaitForTheirCopies) {
  const TemporaryFolder folder;
  ToyJob job;
  job.options.offload = GetParam();
  run_job(delayed(job.under(Strategy::zero3)), [&](World& world, ToyTrainer& trainer) {
    trainer.steps(3);
    Checkpointer checkpointer{trainer.model(), {.folder = folder / "async"}};
    save(trainer.model(), folder / "sync");
    checkpointer.save({});
    trainer.steps(2);
    checkpointer.finish();
    if (world.rank() != 0) { return; }
    EXPECT_EQ(difference(folder / "sync/step-00000003", folder / "async/step-00000003"), "");
  });
}

TEST(Checkpointer, KeepsTheNewestAndMultiples) {
  for (const bool asynchronous : {false, true}) {
    const TemporaryFolder folder;
    run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
      Checkpointer checkpointer{trainer.model(),
                                {.folder = folder / "run",
                                 .every = 1,
                                 .keep = 2,
                                 .keep_every = 3,
                                 .asynchronous = asynchronous}};
      for (int step = 0; step < 7; ++step) {
        trainer.step();
        checkpointer.after_step({});
        checkpointer.finish();
      }
    });
    EXPECT_THAT(folders_in(folder / "run"),
                ElementsAre("step-00000003", "step-00000006", "step-00000007"))
        << asynchronous;
  }
}

TEST(Checkpointer, ASaveDueDuringAnotherBeginsAfterIt) {
  const TemporaryFolder folder;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    Checkpointer checkpointer{trainer.model(), {.folder = folder / "run", .every = 2, .keep = 0}};
    int asked = 0;
    const auto extras = [&] {
      ++asked;
      return CheckpointExtras{};
    };
    for (int step = 0; step < 4; ++step) {
      trainer.step();
      checkpointer.after_step(extras);
    }
    // Step 4 was due during the save of step 2, whose end ranks notice some steps later.
    EXPECT_EQ(asked, 1);
    checkpointer.finish();
    trainer.step();
    checkpointer.after_step(extras);
    EXPECT_EQ(asked, 2);
    checkpointer.finish();
    EXPECT_EQ(checkpointer.newest().filename(), "step-00000005");
  });
  EXPECT_THAT(folders_in(folder / "run"), ElementsAre("step-00000002", "step-00000005"));
}

// A save that began later would not be at a multiple of keep_every and would be removed.
TEST(Checkpointer, APermanentSaveBeginsAtItsStepEvenDuringAnother) {
  const TemporaryFolder folder;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    Checkpointer checkpointer{trainer.model(),
                              {.folder = folder / "run", .every = 1, .keep = 1, .keep_every = 3}};
    for (int step = 0; step < 7; ++step) {
      trainer.step();
      checkpointer.after_step({});
    }
    checkpointer.finish();
  });
  EXPECT_THAT(folders_in(folder / "run"), ElementsAre("step-00000003", "step-00000006"));
}

TEST(Checkpointer, CommitsNothingIfItIsNotFinished) {
  const TemporaryFolder folder;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    {
      Checkpointer checkpointer{trainer.model(), {.folder = folder / "run"}};
      trainer.step();
      checkpointer.save({});
    }
    trainer.steps(2);  // updates must not wait for a destroyed checkpointer
    save(trainer.model(), folder / "run");
  });
  EXPECT_THAT(folders_in(folder / "run"), ElementsAre("step-00000003"));
}

// What would keep the last save from being written is found before the first step.
TEST(Checkpointer, RefusesAFolderThatCannotBeWrittenWhenItIsMade) {
  const TemporaryFolder folder;
  folder.write("run", "no folder");
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    for (const bool asynchronous : {true, false}) {
      EXPECT_THAT(message_of<Error>([&] {
                    const Checkpointer refused{
                        trainer.model(), {.folder = folder / "run", .asynchronous = asynchronous}};
                  }),
                  HasSubstr((folder / "run").string()));
    }
    EXPECT_THAT(message_of<ContractError>([&] { const Checkpointer none{trainer.model(), {}}; }),
                HasSubstr("Checkpointer: the folder's name is empty"));
    const auto name = [&](const ParameterInfo& info) {
      return info.full_name() + (world.rank() == 1 ? "!" : "");
    };
    EXPECT_THAT(message_of<ContractError>([&] {
                  const Checkpointer refused{trainer.model(),
                                             {.folder = folder / "b", .save = {name}}};
                }),
                HasSubstr("Checkpointer: rank 1 would write other tensors or files than rank 0"));
    told += 1;
  });
  EXPECT_EQ(told, 4);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "b")) << "nothing is left of a rehearsal";
}

TEST(Checkpointer, AFailureInTheBackgroundIsThrownLaterAndBlocksNoSave) {
  const TemporaryFolder folder;
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    Checkpointer checkpointer{trainer.model(), {.folder = folder / "run", .every = 1}};
    if (world.rank() == 0) {
      std::filesystem::remove(folder / "run");
      folder.write("run", "no folder");
    }
    world.barrier();
    trainer.step();
    checkpointer.after_step({});
    EXPECT_THAT(message_of<Error>([&] { checkpointer.finish(); }), HasSubstr("run"));
    trainer.step();
    checkpointer.after_step({});  // begins, and fails
    world.barrier();
    checkpointer.save({});  // also fails; does not report the earlier failure
    EXPECT_THAT(message_of<Error>([&] { checkpointer.finish(); }), HasSubstr("run"));
    EXPECT_THAT(message_of<Error>([&] { checkpointer.finish(); }), HasSubstr("run"));
    world.barrier();
    if (world.rank() == 0) { std::filesystem::remove(folder / "run"); }
    world.barrier();
    checkpointer.save({});
    checkpointer.finish();
    EXPECT_EQ(checkpointer.newest().filename(), "step-00000002");
    ++told;
  });
  EXPECT_EQ(told, 4);
}

/// A disk whose writes fail while `full` is set.
class FullDisk final : public ForwardingFiles {
 public:
  explicit FullDisk(const std::atomic<bool>& full) : full_{full} {}

  std::unique_ptr<checkpoint::WritableFile> open(const std::filesystem::path& path,
                                                 std::uint64_t bytes) override {
    return std::make_unique<File>(full_, path, system_.open(path, bytes));
  }

 private:
  struct File final : checkpoint::WritableFile {
    File(const std::atomic<bool>& full, std::filesystem::path path,
         std::unique_ptr<checkpoint::WritableFile> file)
        : full_{full}, path_{std::move(path)}, file_{std::move(file)} {}
    void write_at(std::uint64_t first, std::span<const std::byte> bytes) override {
      if (full_) { throw Error{path_.string() + ": no space left on device"}; }
      file_->write_at(first, bytes);
    }
    void flush() override { file_->flush(); }

    const std::atomic<bool>& full_;
    std::filesystem::path path_;
    std::unique_ptr<checkpoint::WritableFile> file_;
  };

  const std::atomic<bool>& full_;
};

TEST(Saver, ThrowsOneRanksFailureOnAllRanksAndContinues) {
  for (const checkpoint::SaveMode mode :
       {checkpoint::SaveMode::synchronous, checkpoint::SaveMode::asynchronous}) {
    const TemporaryFolder folder;
    std::atomic<int> told = 0;
    run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
      trainer.steps(2);
      std::atomic<bool> full = world.rank() == 2;
      FullDisk files{full};
      checkpoint::Saver saver{trainer.model(), {.folder = folder / "run", .mode = mode}, files};
      const auto trouble = message_of<Error>([&] {
        saver.begin({});
        trainer.step();  // a synchronous save has failed already
        saver.finish();
      });
      EXPECT_THAT(trouble, HasSubstr("no space left on device"));
      told += 1;
      EXPECT_FALSE(saver.under_way());
      EXPECT_EQ(saver.newest().path, "");
      full = false;
      saver.begin({});
      trainer.step();
      saver.finish();
      EXPECT_TRUE(std::filesystem::exists(saver.newest().path / "manifest.json"));
    });
    EXPECT_EQ(told, 4);
    const bool synchronous = mode == checkpoint::SaveMode::synchronous;
    EXPECT_THAT(folders_in(folder / "run"),
                ElementsAre(synchronous ? "step-00000002" : "step-00000003"));
  }
}

TEST(Saver, ThrowsOnAllRanksIfTheFolderCannotBeMade) {
  const TemporaryFolder folder;
  folder.write("run", "a file");
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    EXPECT_THAT(message_of<Error>([&] { save(trainer.model(), folder / "run"); }),
                HasSubstr((folder / "run").string()));
    told += 1;
    trainer.step();
  });
  EXPECT_EQ(told, 4);
}

// Every rank learns that DIR/model.safetensors is not the newest save.
TEST(Save, WarnsIfTheRunsFolderHasDifferentWeights) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run");
  std::filesystem::create_symlink(folder / "own", folder / "run/model.safetensors");
  std::atomic<int> told = 0;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    EXPECT_EQ(save(trainer.model(), folder / "other").warning, "");
    const SaveReport report = save(trainer.model(), folder / "run");
    EXPECT_THAT(report.warning, HasSubstr((folder / "run/model.safetensors").string()));
    EXPECT_TRUE(std::filesystem::exists(report.path / "model.safetensors"));
    Checkpointer checkpointer{trainer.model(), {.folder = folder / "run"}};
    trainer.step();
    checkpointer.save({});
    checkpointer.finish();
    EXPECT_THAT(checkpointer.warning(), HasSubstr("not a file"));
    told += 1;
  });
  EXPECT_EQ(told, 4);
}

// A damaged later step of an earlier run blocks neither saves nor the removal of old ones.
TEST(Saver, RetainsByItsOwnCommits) {
  const TemporaryFolder folder;
  train_and_save(ToyJob{}.under(Strategy::zero3), 9, folder / "run");
  std::filesystem::resize_file(folder / "run/step-00000009/model.safetensors", 100);
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    checkpoint::Saver saver{trainer.model(),
                            {.folder = folder / "run", .keep = checkpoint::Retention{.last = 2}}};
    for (int step = 1; step <= 3; ++step) {
      trainer.step();
      EXPECT_NO_THROW(saver.begin({}));
    }
    EXPECT_EQ(saver.newest().path, folder / "run/step-00000003");
  });
  EXPECT_THAT(folders_in(folder / "run"), ElementsAre("step-00000003", "step-00000009"));
}

/// The refusal of a save into `run` after one step; empty if there is none.
std::string refusal_after_a_step(const std::filesystem::path& run,
                                 const std::filesystem::path& loaded) {
  std::string refusal;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
    Checkpointer checkpointer{trainer.model(), {.folder = run, .keep = 0}};
    if (!loaded.empty()) { (void)load(trainer.model(), loaded); }
    trainer.step();
    try {
      checkpointer.save({});
      checkpointer.finish();
    } catch (const ConfigError& error) {
      if (world.rank() == 0) { refusal = error.what(); }
    }
  });
  return refusal;
}

// newest_checkpoint would give the earlier run's.
TEST(Checkpointer, RefusesAFolderWithLaterStepsUnlessItsModelWasLoadedFromThere) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder / "run";
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    for (int step = 1; step <= 5; ++step) {
      trainer.step();
      save(trainer.model(), run);
    }
  });
  EXPECT_THAT(refusal_after_a_step(run, ""),
              AllOf(HasSubstr("cannot save step 1"), HasSubstr(run.string()),
                    HasSubstr("step-00000005"), HasSubstr("another folder")));
  std::filesystem::copy(run, folder / "copy", std::filesystem::copy_options::recursive);
  EXPECT_THAT(refusal_after_a_step(run, folder / "copy/step-00000002"), HasSubstr("save step 3"));
  EXPECT_EQ(refusal_after_a_step(run, run / "step-00000002"), "");
  EXPECT_EQ(refusal_after_a_step(run, run / "step-00000005/"), "");
}

// Of a program that trains two models.
TEST(Save, RefusesToReplaceTheCheckpointOfAnotherModel) {
  const TemporaryFolder folder;
  ToyJob other = ToyJob{}.under(Strategy::zero3);
  other.toy.hidden += 1;
  const auto first = train_and_save(ToyJob{}.under(Strategy::zero3), 1, folder / "run");
  const auto before = files_of(first);
  EXPECT_THAT(message_of<ConfigError>([&] { train_and_save(other, 1, folder / "run"); }),
              AllOf(HasSubstr(first.string()), HasSubstr("another model"),
                    HasSubstr("a folder of its own")));
  EXPECT_EQ(files_of(first), before);
  EXPECT_EQ(train_and_save(ToyJob{}.under(Strategy::ddp), 1, folder / "run"), first)
      << "the same model again";
}

TEST(Saver, RefusesNonTextValuesBeforeItWrites) {
  const TemporaryFolder folder;
  run_job(ToyJob{}.under(Strategy::zero3), [&](World&, ToyTrainer& trainer) {
    trainer.step();
    EXPECT_THAT(message_of<ContractError>(
                    [&] { save(trainer.model(), folder / "run", {.values = {{"name", "\xFF"}}}); }),
                HasSubstr("UTF-8"));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

/// Peak bytes of a rank's device pool and host pool.
struct Held {
  std::size_t device = 0;
  std::size_t host = 0;
  friend bool operator==(const Held&, const Held&) = default;
};

/// Runs a job that saves asynchronously or not at all.
Held held_by(World& world, const ToyJob& job, bool saves, const std::filesystem::path& folder) {
  // A simulated rank cannot run the toy's plain loops, so the model is declared here.
  ShardedModel model{world, job.options};
  model.add_unit("a", {{"weight", {129, 67}}, {"bias", {67}}});
  model.add_unit("b", {{"weight", {3, 67}}});
  model.materialize(init::normal(1, 0.1F));
  model.optimize_with(job.optimizer, job.optimizer_options);
  if (saves) {
    std::vector<float> buffer(700, 2.0F);
    const CheckpointExtras extras{.buffers = {{"mine", {700}, {buffer.data(), 700}}}};
    Checkpointer checkpointer{model, {.folder = folder, .asynchronous = true}};
    checkpointer.save(extras);
    checkpointer.finish();
    const Checkpointer in_turn{model, {.folder = folder, .asynchronous = false}};
  }
  return {world.memory().report().peak_bytes, world.host_memory().report().peak_bytes};
}

TEST(Checkpointer, HoldsThePlannedHostMemoryAndNoDeviceMemory) {
  for (const auto& [name, format] : state_formats()) {
    for (const Strategy strategy : all_strategies()) {
      const TemporaryFolder folder;
      const ToyJob job = format.under(strategy);
      std::mutex mutex;
      std::vector<Held> measured(4);
      std::vector<Held> without(4);
      run_ranks(4, [&](World& world) {
        const Held held = held_by(world, job, true, folder / "run");
        const std::scoped_lock lock{mutex};
        measured[static_cast<std::size_t>(world.rank())] = held;
      });
      run_ranks(4, [&](World& world) {
        const Held held = held_by(world, job, false, {});
        const std::scoped_lock lock{mutex};
        without[static_cast<std::size_t>(world.rank())] = held;
      });
      for (int rank = 0; rank < 4; ++rank) {
        Held planned;
        simulate_rank({.rank = rank, .ranks = 4},
                      [&](World& world) { planned = held_by(world, job, true, folder / "never"); });
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_EQ(planned, measured[at]) << name << " " << to_string(strategy) << " " << rank;
        EXPECT_EQ(measured[at].device, without[at].device);
        if (strategy == Strategy::zero3) { EXPECT_GT(measured[at].host, without[at].host); }
      }
      EXPECT_FALSE(std::filesystem::exists(folder / "never"));
    }
  }
}

TEST(SaveSchedule, AsksRankZeroMoreOftenAsTheTimeApproaches) {
  std::chrono::steady_clock::time_point now{};
  checkpoint::SaveSchedule schedule{0, std::chrono::minutes{10}, [&] { return now; }};
  std::vector<std::int64_t> asked;
  std::int64_t due = 0;
  for (std::int64_t step = 1; step <= 700 && due == 0; ++step) {
    now += std::chrono::seconds{1};
    if (!schedule.asks_at(step)) { continue; }
    asked.push_back(step);
    if (schedule.hear(step, schedule.answer(step))) { due = step; }
  }
  EXPECT_EQ(due, 600);
  EXPECT_LT(asked.size(), 15U);
  schedule.begin_interval(600);
  EXPECT_FALSE(schedule.asks_at(600));
  EXPECT_TRUE(schedule.asks_at(601));
}

TEST(SaveSchedule, ByStepsNeedsNoQuestion) {
  const checkpoint::SaveSchedule schedule{5, {}, std::chrono::steady_clock::now};
  EXPECT_TRUE(schedule.is_due_at(10));
  EXPECT_FALSE(schedule.is_due_at(11));
  EXPECT_FALSE(schedule.asks_at(10));
}

}  // namespace
}  // namespace tessera::test::checkpointer_test

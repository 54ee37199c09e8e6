#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/file_system.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/save_run.hpp"
#include "checkpoint/share_source.hpp"
#include "checkpoint/store.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera::checkpoint {

/// Whether files are written while training goes on.
enum class SaveMode : std::uint8_t { synchronous, asynchronous };

/// Saves a model into the checkpoints of one run, one save at a time.
///
/// Order:   all calls except `newest` and `under_way` are collective.
/// Memory:  in the host pool, from the constructor on: this rank's share, or two buffers
///          (StagedSource); during a save, rank 0's copies of the trainer's buffers.
/// Errors:  the error of a save is thrown, on all ranks alike, by the call that learns of it. The
///          save has then ended, and the next one can begin.
class Saver {
 public:
  struct Options {
    std::filesystem::path folder;
    SaveOptions save = {};
    SaveMode mode = SaveMode::synchronous;
    std::optional<Retention> keep = {};  ///< none: all checkpoints are kept
    std::string call = "save";           ///< what the user has called, for errors
  };
  /// `model` and `files` outlive it.
  Saver(ShardedModel& model, Options options, FileSystem& files = system_files());
  /// Waits for the background. A save that is not committed is lost.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Finds out whether a save can be written, before there is anything to lose: makes the run's
  /// folder and the folder of a save, compares what the ranks would write, and removes the latter.
  /// Throws what `begin` would throw. `newest` then has a warning if there is no room for a save.
  void rehearse();
  /// Begins a save of the current state, between steps. Requires that none is in progress. A
  /// synchronous save has ended on return.
  void begin(const CheckpointExtras& extras);
  [[nodiscard]] bool under_way() const noexcept { return run_ != nullptr; }
  /// Continues the save in progress, without waiting for the disk.
  void poll();
  /// Waits until no save is in progress.
  void finish();
  /// The newest checkpoint that this object has committed; empty if there is none.
  [[nodiscard]] const SaveReport& newest() const noexcept { return newest_; }

 private:
  [[nodiscard]] SaveTexts texts() const;
  [[nodiscard]] bool continues_run() const;
  [[nodiscard]] SaveRun::Parts parts(SaveAim aim);

  ShardedModel& model_;
  World& world_;
  Options options_;
  FileSystem& files_;
  CheckpointStore store_;
  std::unique_ptr<engine::TrainingState> state_;
  std::unique_ptr<SavePlan> plan_;
  std::unique_ptr<ShareSource> source_;
  SaveReport newest_;
  int uncaught_ = std::uncaught_exceptions();  // exceptions in flight when this was made
  std::unique_ptr<SaveRun> run_;
};

}  // namespace tessera::checkpoint

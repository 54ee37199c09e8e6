#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {

/// How a Checkpointer saves.
struct CheckpointerOptions {
  /// The run's folder, with one folder for each checkpoint: of one run and one model. A relative
  /// path keeps the meaning that it has when the Checkpointer is made.
  std::filesystem::path folder;
  std::int64_t every = 0;  ///< steps between saves; 0: none by steps
  /// Minutes between saves, by the clock of rank 0; 0: none by time. Rank 0 announces after how
  /// many steps the ranks ask it again, so that they need not communicate after each step.
  std::chrono::minutes minutes{0};
  /// The number of newest checkpoints that are kept; 0: all. An older checkpoint is removed once
  /// the newest has been read back and verified.
  int keep = 2;
  /// Checkpoints of steps that are multiples of this number are kept too; 0: none. A save that is
  /// due at a multiple saves that very step: it waits for a save in progress. Other saves may slip
  /// to a later step.
  std::int64_t keep_every = 0;
  /// Whether files are written while training goes on. It takes host memory for this rank's share
  /// of the state.
  bool asynchronous = true;
  SaveOptions save = {};  ///< how each checkpoint is written
};

/// Saves a model periodically. An asynchronous save copies this rank's share to host memory unit by
/// unit, beside the next step: a unit's update waits only for that unit's copy. A thread then
/// writes the files.
///
/// Order:   the constructor, `after_step`, `save` and `finish` are collective. Ranks communicate
///          only within these calls: in `after_step` by one short text while a save is in progress,
///          to learn when it has ended, and by some texts an interval for `minutes`.
/// Time:    an asynchronous save costs the calling thread the time to enqueue the copies, and at a
///          multiple of `keep_every` also the rest of a save in progress. It waits for the result
///          of the previous step. A save is complete once a later `after_step` or `finish` has
///          found so: after at least four calls of `after_step`, and two more if older checkpoints
///          are removed, for which all ranks verify the new one together.
/// Memory:  with `asynchronous` the host pool holds this rank's share of the state, allocated in
///          the constructor and counted by `plan`; otherwise two buffers of at most 16 MiB each.
///          During a save rank 0 also holds the trainer's buffers there. No device memory.
/// Errors:  the constructor makes the run's folder, and the folder of a checkpoint, which it
///          removes again: what would keep every save from being written is an Error there, before
///          the first step. The first save is a ConfigError in a folder that holds a later
///          checkpoint than the model's step, unless the model was loaded from that folder: a
///          resume would take that for the newest. An error in the background is thrown, on all
///          ranks, by the next `after_step` or `finish`. The run can go on, and later saves are
///          tried. Otherwise as tessera::save.
class Checkpointer {
 public:
  /// *Collective.* Prepares saves of `model`, which must outlive this object. It is called after
  /// optimize_with.
  Checkpointer(ShardedModel& model, CheckpointerOptions options);
  /// Waits for the thread. A save that is not complete is lost: call `finish` before.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// *Collective.* Begins a save if one is due, and completes a save whose files all ranks have
  /// written. It is called after each step. A save that is due while another is in progress begins
  /// once that has ended; at a multiple of `keep_every` this call waits for it. `extras` is called
  /// if a save begins.
  void after_step(const std::function<CheckpointExtras()>& extras);
  /// *Collective.* Begins a save now, after a save in progress has ended. An error of that save is
  /// not thrown here, so that this save begins in any case.
  void save(const CheckpointExtras& extras);
  /// *Collective.* Waits until a save in progress is complete.
  void finish();
  /// Returns the newest checkpoint that this object has completed; its path is empty if there is
  /// none. Its warning and step are the same on all ranks. Until the first one is complete, its
  /// warning says whether the folder lacked the room for a checkpoint when this object was made.
  [[nodiscard]] SaveReport report() const;
  /// Returns the path of `report`.
  [[nodiscard]] std::filesystem::path newest() const;
  /// Returns the warning of `report`.
  [[nodiscard]] std::string warning() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace tessera

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
  std::filesystem::path folder;  ///< one run's; its checkpoints are folders in it
  std::int64_t every = 0;        ///< steps between saves; 0: none by steps
  /// Minutes between saves, by the clock of rank 0; 0: none by time. Rank 0 tells after how many
  /// steps it is asked again, so that ranks need not speak of it after each.
  std::chrono::minutes minutes{0};
  /// The newest checkpoints that stay; 0: all. An older one is removed when the newest has been
  /// read back and verified.
  int keep = 2;
  /// Steps whose multiples stay as well; 0: none. A save that is due at a multiple is of that very
  /// step: it waits for one that is under way. Other saves that are due may slip to a later step.
  std::int64_t keep_every = 0;
  /// Whether files are written while training goes on. It takes host memory for this rank's share
  /// of the state.
  bool asynchronous = true;
  SaveOptions save = {};  ///< of each
};

/// Saves a model periodically. Asynchronous saves copy this rank's share to host memory unit by
/// unit, beside the next step, whose updates wait for the copy of their own unit alone; a thread
/// then writes the files.
///
/// Order:   collective calls: the constructor, `after_step`, `save`, `finish`. Ranks speak to each
///          other within these calls only: in `after_step` one short text while a save is under
///          way, which is how they learn of its end, and some texts an interval for `minutes`.
/// Time:    an asynchronous save costs the calling thread what it takes to enqueue the copies, and
///          at a multiple of `keep_every` what is left of the save under way. The outcome of the
///          step before is waited for. It is there when a later `after_step` or `finish` has told
///          so: four calls of `after_step` at the least, and two more where older checkpoints go,
///          which all ranks share the reading for.
/// Memory:  with `asynchronous` the host pool holds this rank's share of the state, allocated in
///          the constructor and planned; otherwise two buffers of at most 16 MiB each. While a save
///          is under way, rank 0 also holds the trainer's buffers there. No device memory.
/// Errors:  what fails in the background is thrown, on all ranks, by the next `after_step` or by
///          `finish`. The run can go on; later saves are tried. Otherwise as tessera::save.
class Checkpointer {
 public:
  /// After optimize_with. `model` outlives it.
  Checkpointer(ShardedModel& model, CheckpointerOptions options);
  /// Waits for the thread. What it has not committed is lost: call `finish`.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// After each step: begins a save if one is due and none is under way (a save that is due while
  /// one is under way begins when that has ended; at a multiple of `keep_every` this call waits for
  /// that), and ends one whose files all ranks have written. `extras` is asked for if a save
  /// begins.
  void after_step(const std::function<CheckpointExtras()>& extras);
  /// Begins a save now, after the one under way has ended. What that one fails with is not thrown
  /// here, so that this one begins in any case.
  void save(const CheckpointExtras& extras);
  /// Waits until the save under way is there.
  void finish();
  /// Returns the newest checkpoint that this object has committed; empty if there is none.
  [[nodiscard]] std::filesystem::path newest() const;
  /// Returns what is to be told of `newest`, as SaveReport::warning. The same on all ranks.
  [[nodiscard]] std::string warning() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace tessera

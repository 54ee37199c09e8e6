#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background_job.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/rank_answer.hpp"
#include "checkpoint/save_place.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/saved_extras.hpp"
#include "checkpoint/share_source.hpp"
#include "checkpoint/store.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

/// The texts of a checkpoint, written by the rank that commits.
struct SaveTexts {
  Manifest manifest;  ///< without files, tensors and sums
  std::string provenance;
};

/// Whether a checkpoint is written, or only found out whether one can be.
enum class SaveAim : std::uint8_t { save, rehearse };

/// One save in progress: what its ranks do on background threads, and what they tell each other.
///
///   preparing: rank 0 makes the folder    writing: all ranks    committing: rank 0
///
/// If ranks have parts of one chunk, then between writing and committing each rank sums the chunks
/// that begin in its pieces (*summing*).
///
/// If older checkpoints are to be removed, all ranks then verify the new one, each its own blocks
/// (*verifying*), and rank 0 removes the older ones (*retaining*).
///
/// If some rank does not find the folder in its own DIR, the machines share no file system. The
/// first rank of each machine then makes a part (*dividing*), commits it, and removes old parts
/// once all parts are committed (*retaining*).
///
/// A rehearsal goes the same way up to the folders, which it removes again.
///
/// Order:   `poll` is collective.
/// Threads: the rank's own. The destructor waits for the background.
class SaveRun {
 public:
  /// All of them outlive it. `keep`: the checkpoints to keep once this one is committed; none: keep
  /// all.
  struct Parts {
    World& world;
    const SavePlan& plan;
    ShareSource& source;  ///< begin() was called
    CheckpointStore& store;
    FileSystem& files;
    std::optional<Retention> keep;
    std::filesystem::path folder;  ///< this rank's DIR, absolute
    std::string call;              ///< what the user has called, for errors
    SaveAim aim = SaveAim::save;
    bool beside_later = true;  ///< whether DIR may hold later steps
  };
  SaveRun(const Parts& parts, SaveTexts texts, const CheckpointExtras& extras);

  /// *Collective.* Ranks exchange their progress, in a short text, and go on. Returns whether the
  /// save has ended. If one rank failed, throws its error on all ranks; the save has then ended.
  bool poll();
  /// Waits until this rank has done its part, at most `longest`.
  void wait(std::chrono::milliseconds longest) const;
  /// Whether all ranks know that the checkpoint is committed.
  [[nodiscard]] bool is_committed() const noexcept { return committed_; }
  /// The checkpoint, or this machine's part of it, once committed.
  [[nodiscard]] SaveReport committed() const {
    return {folder_, no_weights_, texts_.manifest.step};
  }
  /// After a rehearsal: that the folder has no room for a checkpoint; empty if it has.
  [[nodiscard]] const std::string& little_room() const noexcept { return little_room_; }

 private:
  enum class Phase : std::uint8_t {
    preparing,
    dividing,
    writing,
    summing,
    committing,
    verifying,
    retaining
  };
  [[nodiscard]] bool acts() const;
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string result() const;
  [[nodiscard]] RankAnswer answer() const;
  void divide(const std::vector<RankAnswer>& all);
  [[nodiscard]] std::string difference(const std::vector<RankAnswer>& all) const;
  void require_place(const SavePlace& place, int blind, const std::vector<RankAnswer>& all) const;
  void begin_dividing(const SavePlace& place);
  void begin_writing(const std::string& name);
  void write();
  void begin_summing();
  void finish_writing(const std::string& failure);
  bool finish_committing(const std::vector<std::string>& all, const std::string& failure);
  void finish_verifying(const std::string& failure);
  void begin_retaining(const std::function<void()>& remove_old);
  [[nodiscard]] std::string not_removed(const std::string& failure) const;
  static void throw_not_retained(const std::vector<std::string>& all);
  void abandon(const std::string& failure);
  [[nodiscard]] std::string find_little_room() const;
  [[nodiscard]] Manifest joined(const std::vector<std::string>& sums) const;
  [[nodiscard]] std::vector<PartRange> ranges() const;
  void keep(CheckpointStore::Committed committed);
  void commit(const std::vector<std::string>& sums, const std::vector<std::string>& written);
  [[nodiscard]] bool sees_folder() const;
  [[nodiscard]] int rank() const { return parts_.world.rank(); }
  [[nodiscard]] bool leads() const { return place_.leads(rank()); }
  [[nodiscard]] bool in_parts() const { return place_.parts() > 1; }
  [[nodiscard]] bool rehearses() const { return parts_.aim == SaveAim::rehearse; }

  Parts parts_;
  SaveTexts texts_;
  SavedExtras extras_;
  SavePlace place_;
  Phase phase_ = Phase::preparing;
  std::string save_;  // the name of rank 0's first folder: unique to this save
  std::filesystem::path partial_;
  std::filesystem::path folder_;
  std::string failure_;       // failure of some rank
  std::string no_weights_;    // CheckpointStore::Committed
  std::string not_retained_;  // why this rank has not removed older checkpoints
  std::string little_room_;
  bool has_old_ = false;  // whether there are checkpoints to remove
  bool committed_ = false;
  std::optional<TensorWriter> state_writer_;
  std::optional<TensorWriter> extras_writer_;
  std::optional<BackgroundJob> job_;  // destroyed first
};

}  // namespace tessera::checkpoint

#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background_job.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/save_place.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/saved_extras.hpp"
#include "checkpoint/share_source.hpp"
#include "checkpoint/store.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The texts of a checkpoint. The rank that commits writes them.
struct SaveTexts {
  Manifest manifest;  ///< without files, tensors and sums
  std::string provenance;
};

/// One save that is under way: what its ranks do on threads of their own, and what they tell each
/// other of it.
///
///   preparing: rank 0 makes the folder    writing: all ranks    committing: rank 0
///
/// Where ranks have parts of one chunk, they sum such chunks between the two, each those that begin
/// in its pieces (*summing*).
///
/// Where older checkpoints are to go, all ranks then verify the new one, each its blocks
/// (*verifying*), and rank 0 removes them (*retaining*).
///
/// If some rank does not find the folder in its own DIR, the machines share no file system. The
/// first rank of each machine then makes a part (*dividing*), commits it, and removes old parts
/// once all parts are committed (*retaining*).
///
/// Order:   `poll` is collective.
/// Threads: the rank's own. The destructor waits for the background.
class SaveRun {
 public:
  /// All outlive it. `keep`: which checkpoints stay when this one is there; none: all do.
  struct Parts {
    World& world;
    const SavePlan& plan;
    ShareSource& source;  ///< has begun
    CheckpointStore& store;
    FileSystem& files;
    std::optional<Retention> keep;
    std::filesystem::path folder;  ///< this rank's DIR
  };
  SaveRun(const Parts& parts, SaveTexts texts, const CheckpointExtras& extras);

  /// *Collective.* Ranks tell each other how far they are, in a short text, and go on. Returns
  /// whether the save has ended. Throws on all ranks what has failed on one: the save has ended.
  bool poll();
  /// Waits until this rank has ended what it does, but not longer than `longest`.
  void wait(std::chrono::milliseconds longest) const;
  /// Whether all ranks know that the checkpoint is there.
  [[nodiscard]] bool is_committed() const noexcept { return committed_; }
  /// The checkpoint, or this machine's part of it, when it is committed.
  [[nodiscard]] SaveReport committed() const { return {folder_, no_weights_}; }

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
  void divide(const std::vector<std::string>& all);
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
  [[nodiscard]] Manifest joined(const std::vector<std::string>& sums) const;
  [[nodiscard]] std::vector<PartRange> ranges() const;
  void commit(const std::vector<std::string>& sums, const std::vector<std::string>& written);
  [[nodiscard]] bool sees_folder() const;
  [[nodiscard]] int rank() const { return parts_.world.rank(); }
  [[nodiscard]] bool leads() const { return place_.leads(rank()); }
  [[nodiscard]] bool in_parts() const { return place_.parts() > 1; }

  Parts parts_;
  SaveTexts texts_;
  SavedExtras extras_;
  SavePlace place_;
  Phase phase_ = Phase::preparing;
  std::string save_;  // the name of rank 0's first folder: no other save's
  std::filesystem::path partial_;
  std::filesystem::path folder_;
  std::string failure_;       // of some rank
  std::string no_weights_;    // CheckpointStore::Committed
  std::string not_retained_;  // why this rank has not removed older checkpoints
  bool has_old_ = false;      // checkpoints, which are to go
  bool committed_ = false;
  std::optional<TensorWriter> state_writer_;
  std::optional<TensorWriter> extras_writer_;
  std::optional<BackgroundJob> job_;  // destroyed first
};

}  // namespace tessera

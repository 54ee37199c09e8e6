#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/buffer_plan.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

/// Copies this rank's share of the training state to host memory, and writes it to files.
///
/// Threads: the rank calls `begin`, a background thread `write`.
class ShareSource {
 public:
  virtual ~ShareSource() = default;
  ShareSource(const ShareSource&) = delete;
  ShareSource& operator=(const ShareSource&) = delete;

  /// Called between steps: the current state is what is written.
  virtual void begin() = 0;
  /// Writes the whole share.
  virtual void write(TensorWriter& writer) = 0;

 protected:
  ShareSource() = default;
};

/// A copy of the whole share in the host pool. Each unit's next update waits only for that unit's
/// copy. `state` is destroyed first, since it ends the copies.
class SnapshotSource final : public ShareSource {
 public:
  SnapshotSource(World& world, engine::TrainingState& state, const SavePlan& plan);

  /// Enqueues the copies, in unit order, and returns.
  void begin() override;
  /// Waits for one unit's copy after the other.
  void write(TensorWriter& writer) override;

 private:
  engine::TrainingState& state_;
  const SavePlan& plan_;
  Buffer memory_;
  std::vector<void*> copies_;             // by piece
  std::vector<std::size_t> first_piece_;  // by unit, plus one entry for the end
  std::vector<OwnedEvent> copied_;        // by unit
};

/// Two buffers in the host pool: while one is written, the other is filled. The state must not
/// change until `write` has returned.
class StagedSource final : public ShareSource {
 public:
  /// The most bytes of one buffer, a multiple of a page; another page is added for its alignment.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

  StagedSource(World& world, engine::TrainingState& state, const SavePlan& plan);

  void begin() override;
  void write(TensorWriter& writer) override;

 private:
  [[nodiscard]] BufferPlan plan_buffers() const;
  void fill(const BufferRound& round, std::byte* buffer);
  void sum(const BufferRound& round, const std::byte* buffer, TensorWriter& writer) const;
  void write(const BufferRound& round, const std::byte* buffer, TensorWriter& writer) const;

  World& world_;
  engine::TrainingState& state_;
  const SavePlan& plan_;
  std::size_t buffer_bytes_;
  Buffer buffers_[2];
  OwnedStream lane_;
};

}  // namespace tessera::checkpoint

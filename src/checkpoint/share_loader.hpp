#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/buffer_plan.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/file_pages.hpp"
#include "checkpoint/file_runs.hpp"
#include "checkpoint/load_plan.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/read_ahead.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

/// Fills this rank's share of the training state: reads what it needs, converts it where formats
/// differ, and sums what it reads. Several threads read and sum ahead of the rank's own thread,
/// which converts and writes.
///
/// Memory: while it lives, kBuffers buffers of about kMostBytes in the host pool, and two of the
///         same size if anything is converted.
class ShareLoader {
 public:
  /// The most bytes of one buffer.
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  /// A thread sums one buffer while others read: a disk reaches its full rate only with several
  /// reads at a time.
  static constexpr std::size_t kReaders = 4;
  static constexpr std::size_t kBuffers = kReaders + 1;

  /// All of them outlive it.
  ShareLoader(World& world, engine::TrainingState& state, const LoadPlan& plan, LoadSource& source);

  /// Continues to fill the share, for about `longest`; called after begin_write and before
  /// end_write. Returns whether the share is complete; the sums of everything read are then added
  /// to `sums`, once. It must not be called again after an error.
  [[nodiscard]] bool load(SumTable& sums, std::chrono::milliseconds longest);

 private:
  void plan_parts();
  [[nodiscard]] bool lies_in_runs(const engine::StatePiece& piece) const;
  [[nodiscard]] std::vector<FileRun> runs_of(const BufferPart& part) const;
  [[nodiscard]] std::vector<FileRun> runs_beside(const BufferPart& part) const;
  void fill_runs(const BufferPart& part, std::byte* buffer, SumTable& sums) const;
  void dequantise(const BufferPart& part, const std::byte* buffer, float* values) const;
  [[nodiscard]] BufferPart part_of(std::size_t piece, const Range& elems, bool in_runs) const;
  void take_memory();
  [[nodiscard]] std::byte* buffer_of(std::size_t round);
  [[nodiscard]] const engine::StatePiece& piece(const BufferPart& part) const;
  [[nodiscard]] const engine::StateTensorInfo& info(const BufferPart& part) const;
  [[nodiscard]] const TensorRecipe& recipe(const BufferPart& part) const;
  [[nodiscard]] const ManifestTensor& listed(std::size_t tensor) const;
  [[nodiscard]] FileArray array_of(std::size_t tensor) const;
  [[nodiscard]] const std::vector<BufferRound>& rounds() const { return buffer_plan_.rounds(); }
  [[nodiscard]] std::size_t size_of_source(std::size_t tensor) const;
  void fill(std::size_t number, std::size_t reader);
  void read(const BufferRun& run, std::byte* to);
  void sum(const BufferPart& part, const std::byte* buffer, SumTable& sums) const;
  void sum(const TensorSource& from, const Range& elems, const std::byte* bytes,
           SumTable& sums) const;
  void write(const BufferPart& part, const std::byte* buffer);
  void decode(const BufferPart& part, const std::byte* buffer, float* values) const;
  const void* encode(const BufferPart& part, const float* values);

  World& world_;
  engine::TrainingState& state_;
  const LoadPlan& plan_;
  LoadSource& source_;
  std::vector<const std::string*> files_;  // those of the manifest, in order
  BufferPlan buffer_plan_{kMostBytes + kFilePage};
  Buffer buffers_;          // kBuffers of `stride_` bytes
  std::size_t stride_ = 0;  // a multiple of a page
  Buffer values_;
  Buffer encoded_;
  SumTable sums_[kReaders];         // of what each thread has read
  std::optional<ReadAhead> ahead_;  // ends before the buffers
};

}  // namespace tessera::checkpoint

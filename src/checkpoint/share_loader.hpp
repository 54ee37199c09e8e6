#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_runs.hpp"
#include "checkpoint/load_plan.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/read_ahead.hpp"
#include "checkpoint/sum_table.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

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
  /// Elements of a piece, and the bytes in a buffer that they are made from.
  struct Part {
    const engine::StatePiece* piece = nullptr;
    const TensorRecipe* recipe = nullptr;
    std::int64_t first = 0;  // index within the piece
    std::int64_t count = 0;
    bool in_runs = false;  // whether it is split in the file, or does not begin and end at chunks
    std::int64_t from_first = 0;  // elements of the recipe's `from`; the first one of the runs
    std::int64_t from_count = 0;
    std::int64_t beside_first = 0;
    std::int64_t beside_count = 0;
    std::size_t from_bytes = 0;
    std::size_t beside_bytes = 0;
    std::size_t from_at = 0;  // offset in the buffer
    std::size_t beside_at = 0;
  };
  /// Bytes of a file that are read at once.
  struct Run {
    const std::string* file = nullptr;
    std::uint64_t first = 0;
    std::size_t bytes = 0;
    std::size_t at = 0;  // offset in the buffer
  };
  /// What fills a buffer at a time.
  struct Round {
    std::vector<Part> parts;
    std::vector<Run> runs;
    std::size_t end = 0;  // offset in the buffer
  };
  void plan_parts();
  [[nodiscard]] bool lies_in_runs(const engine::StatePiece& piece) const;
  [[nodiscard]] std::vector<FileRun> runs_of(const Part& part) const;
  [[nodiscard]] std::vector<FileRun> runs_beside(const Part& part) const;
  void fill_runs(const Part& part, std::byte* buffer, SumTable& sums) const;
  void dequantise(const Part& part, const std::byte* buffer, float* values) const;
  [[nodiscard]] Part part_of(const engine::StatePiece& piece, std::int64_t first,
                             std::int64_t count, bool in_runs) const;
  void append(Round& round, Part part) const;
  [[nodiscard]] std::size_t append(Round& round, const TensorSource& from, std::int64_t first,
                                   std::size_t bytes) const;
  void take_memory();
  [[nodiscard]] std::byte* buffer_of(std::size_t round);
  [[nodiscard]] const engine::StateTensorInfo& info(const Part& part) const;
  [[nodiscard]] std::size_t size_of_source(std::size_t tensor) const;
  void fill(std::size_t number, std::size_t reader);
  void read(const Run& run, std::byte* to);
  void sum(const Part& part, const std::byte* buffer, SumTable& sums) const;
  void sum(const TensorSource& from, std::int64_t first, std::int64_t count, const std::byte* bytes,
           SumTable& sums) const;
  void write(const Part& part, const std::byte* buffer);
  void decode(const Part& part, const std::byte* buffer, float* values) const;
  const void* encode(const Part& part, const float* values);

  World& world_;
  engine::TrainingState& state_;
  const LoadPlan& plan_;
  LoadSource& source_;
  std::vector<Round> rounds_;
  Buffer buffers_;          // kBuffers of `stride_` bytes
  std::size_t stride_ = 0;  // a multiple of a page
  Buffer values_;
  Buffer encoded_;
  SumTable sums_[kReaders];         // of what each thread has read
  std::optional<ReadAhead> ahead_;  // ends before the buffers
};

}  // namespace tessera

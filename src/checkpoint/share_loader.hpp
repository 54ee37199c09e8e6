#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/background_job.hpp"
#include "checkpoint/load_plan.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// Fills this rank's share of the training state: reads what it needs, converts it where formats
/// differ, and sums what it reads. One buffer is read into while what another holds is written.
///
/// Memory: while it lives, two buffers of about kMostBytes in the host pool, and two of the same
///         size where something is converted.
class ShareLoader {
 public:
  /// The most bytes of one buffer.
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;

  /// All outlive it.
  ShareLoader(World& world, engine::TrainingState& state, const LoadPlan& plan, LoadSource& source);

  /// Goes on filling the share, for about `longest`: after begin_write and before end_write.
  /// Returns whether all of it is filled. After an error it is not called again.
  [[nodiscard]] bool load(SumTable& sums, std::chrono::milliseconds longest);

 private:
  /// Elements of a piece, and the bytes from which they are made, in a buffer.
  struct Part {
    const engine::StatePiece* piece = nullptr;
    const TensorRecipe* recipe = nullptr;
    std::int64_t first = 0;  // within the piece
    std::int64_t count = 0;
    std::int64_t from_first = 0;  // elements of the recipe's `from`
    std::int64_t from_count = 0;
    std::int64_t beside_first = 0;
    std::int64_t beside_count = 0;
    std::size_t from_at = 0;  // in the buffer
    std::size_t beside_at = 0;
    std::size_t end = 0;
  };
  void plan_parts();
  [[nodiscard]] Part part_of(const engine::StatePiece& piece, std::int64_t first,
                             std::int64_t count) const;
  [[nodiscard]] std::uint64_t first_in_file(const Part& part) const;
  void take_memory();
  [[nodiscard]] std::byte* buffer_of(std::size_t round);
  void begin_reading(std::size_t round);
  [[nodiscard]] const engine::StateTensorInfo& info(const Part& part) const;
  [[nodiscard]] std::size_t size_of_source(std::size_t tensor) const;
  void read(const std::vector<Part>& parts, std::byte* buffer);
  void read(const TensorSource& from, std::int64_t first, std::int64_t count, std::byte* to);
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
  std::vector<std::vector<Part>> rounds_;
  Buffer buffers_[2];
  Buffer values_;
  Buffer encoded_;
  std::size_t round_ = 0;                 // that is filled next
  std::optional<BackgroundJob> reading_;  // of that round; ends before the buffers
};

}  // namespace tessera

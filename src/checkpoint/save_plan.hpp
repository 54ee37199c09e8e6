#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera::checkpoint {

/// A piece of this rank's share and its place among the tensors of the layout.
struct PlannedPiece {
  std::size_t tensor = 0;        ///< index in CheckpointLayout::tensors
  std::uint64_t first_byte = 0;  ///< offset in the tensor
  std::uint64_t bytes = 0;
  std::size_t unit = 0;
  const void* data = nullptr;  ///< as in StatePiece
  bool on_host = false;
  const engine::StatePiece* cut = nullptr;  ///< set if it consists of several runs in the tensor
  std::uint64_t elem_bytes = 1;
  /// Whether it consists of whole chunks of the tensor. If not, chunks are summed when all ranks
  /// have written their parts of them: see sum_split_chunks.
  bool whole_chunks = true;

  /// Calls `visit(first_byte, at, bytes)` for each run of the piece's bytes [first, first + count)
  /// that lies end to end in the tensor: from byte `first_byte` of the tensor on, and at byte `at`
  /// after `first` in memory. Both are starts of elements.
  template <class Visit>
  void for_each_run(std::uint64_t first, std::uint64_t count, const Visit& visit) const {
    if (cut == nullptr) { return visit(first_byte + first, std::uint64_t{0}, count); }
    const auto elems = [this](std::uint64_t some) {
      return static_cast<std::int64_t>(some / elem_bytes);
    };
    cut->for_each_run({elems(first), elems(count)}, [&](const Range& whole, std::int64_t at) {
      visit(static_cast<std::uint64_t>(whole.first) * elem_bytes,
            static_cast<std::uint64_t>(at) * elem_bytes,
            static_cast<std::uint64_t>(whole.elems) * elem_bytes);
    });
  }
};

/// Where the training state of a model lies in a checkpoint, and which bytes of it this rank
/// writes. It follows from the model and the options, so ranks need not exchange it. `state`
/// outlives it.
class SavePlan {
 public:
  /// Throws ContractError for names that CheckpointLayout rejects.
  SavePlan(const engine::TrainingState& state, const SaveOptions& options);

  [[nodiscard]] const CheckpointLayout& layout() const noexcept { return *layout_; }
  /// Indexed by tensor of the layout.
  [[nodiscard]] const std::vector<std::string>& roles() const noexcept { return roles_; }
  /// This rank's share, in the order of TrainingState::share.
  [[nodiscard]] const std::vector<PlannedPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] std::size_t units() const noexcept { return units_; }
  /// Whether some of this rank's pieces do not consist of whole chunks.
  [[nodiscard]] bool splits_chunks() const noexcept { return splits_chunks_; }
  /// A number for the chunks that this rank writes a part of. The sum of the numbers of some ranks,
  /// modulo 2^64, is 0 if these ranks together write all bytes of each of those chunks. If they do
  /// not, it is 0 by chance once in 2^64 cases.
  [[nodiscard]] std::uint64_t split_balance() const noexcept { return split_balance_; }

 private:
  std::optional<CheckpointLayout> layout_;
  std::vector<std::string> roles_;
  std::vector<PlannedPiece> pieces_;
  std::size_t units_ = 0;
  bool splits_chunks_ = false;
  std::uint64_t split_balance_ = 0;
};

/// Adds the files and tensors of `layout` to `manifest`, without sums; `roles` by tensor.
void list_in(Manifest& manifest, const CheckpointLayout& layout,
             const std::vector<std::string>& roles);

}  // namespace tessera::checkpoint

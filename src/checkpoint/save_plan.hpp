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

namespace tessera {

/// A piece of this rank's share and its place among the tensors of the layout.
struct PlannedPiece {
  std::size_t tensor = 0;        ///< index in CheckpointLayout::tensors
  std::uint64_t first_byte = 0;  ///< of the tensor
  std::uint64_t bytes = 0;
  std::size_t unit = 0;
  const void* data = nullptr;  ///< as StatePiece
  bool on_host = false;
};

/// Where the training state of a model lies in a checkpoint, and which bytes of it this rank
/// writes. It follows from the model and the options, so that ranks need not speak of it.
class SavePlan {
 public:
  /// ContractError for names that CheckpointLayout refuses.
  SavePlan(const engine::TrainingState& state, const SaveOptions& options);

  [[nodiscard]] const CheckpointLayout& layout() const noexcept { return *layout_; }
  /// By tensor of the layout.
  [[nodiscard]] const std::vector<std::string>& roles() const noexcept { return roles_; }
  /// This rank's share, in the order of TrainingState::share.
  [[nodiscard]] const std::vector<PlannedPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] std::size_t units() const noexcept { return units_; }

 private:
  std::optional<CheckpointLayout> layout_;
  std::vector<std::string> roles_;
  std::vector<PlannedPiece> pieces_;
  std::size_t units_ = 0;
};

/// Adds the files and tensors of `layout` to `manifest`, without sums; `roles` by tensor.
void list_in(Manifest& manifest, const CheckpointLayout& layout,
             const std::vector<std::string>& roles);

}  // namespace tessera

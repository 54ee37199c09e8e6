#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

/// The layout of a trainer's own buffers. Throws ContractError if a name is empty or repeated, or a
/// buffer's size differs from its shape.
[[nodiscard]] CheckpointLayout layout_of_extras(const std::vector<CheckpointBuffer>& buffers);

/// What a trainer adds to one checkpoint. Rank 0 holds a copy of the buffers in the host pool.
class SavedExtras {
 public:
  /// Enqueues the copies on the compute stream, in order with the trainer's work.
  SavedExtras(World& world, const CheckpointExtras& extras);

  [[nodiscard]] const std::map<std::string, std::string>& values() const noexcept {
    return values_;
  }
  [[nodiscard]] const CheckpointLayout& layout() const noexcept { return layout_; }
  /// On rank 0: waits for the copies, and writes them. Any thread.
  void write(TensorWriter& writer) const;

 private:
  std::map<std::string, std::string> values_;
  CheckpointLayout layout_;
  Buffer memory_;
  OwnedEvent copied_;
};

}  // namespace tessera::checkpoint

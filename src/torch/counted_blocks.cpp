#include "torch/counted_blocks.hpp"

#include <cstdint>
#include <utility>

namespace tessera::torch {

CountedBlock::CountedBlock(std::shared_ptr<MemoryTracker> tracker, std::size_t bytes)
    : bytes_{bytes} {
  tracker->add(Category::activations, bytes, kTensorsOfLibtorch);
  tracker_ = std::move(tracker);
}

CountedBlock::CountedBlock(CountedBlock&& other) noexcept
    : tracker_{std::move(other.tracker_)},
      bytes_{other.bytes_},
      memory_{std::move(other.memory_)} {}

CountedBlock::~CountedBlock() {
  memory_.clear();
  if (tracker_) { tracker_->remove(Category::activations, bytes_, kTensorsOfLibtorch); }
}

void CountedBlocks::put(const void* address, CountedBlock block) {
  Part& part = part_of(address);
  const std::lock_guard lock{part.mutex};
  part.blocks.emplace(address, std::move(block));
}

bool CountedBlocks::end(const void* address) noexcept {
  Part& part = part_of(address);
  // Removed from the table before its memory is freed, which another thread may get at once.
  const auto block = [&] {
    const std::lock_guard lock{part.mutex};
    return part.blocks.extract(address);
  }();
  return !block.empty();
}

CountedBlocks::Part& CountedBlocks::part_of(const void* address) noexcept {
  // Addresses are multiples of at least 64.
  return parts_[(reinterpret_cast<std::uintptr_t>(address) >> 6U) % parts_.size()];
}

}  // namespace tessera::torch

#include "torch/counted_allocations.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "torch/counted_blocks.hpp"

namespace tessera::torch {

namespace {

thread_local CountedAllocations* newest = nullptr;

// libtorch's allocator of CPU memory, and what it counts: one of each in the process, like
// libtorch's own. Neither is ever destroyed, since tensors may outlive everything else.
struct CpuMemory {
  c10::Allocator* before = nullptr;  // which provides the memory
  CountedBlocks blocks;
};

CpuMemory& cpu_memory() {
  static CpuMemory* const memory = new CpuMemory;  // never destroyed
  return *memory;
}

// The deleter of all memory. It may also get memory that was allocated before it was installed.
void end_block(void* data) {
  if (data != nullptr && !cpu_memory().blocks.end(data)) {
    cpu_memory().before->raw_deleter()(data);
  }
}

c10::DataPtr counted(std::size_t bytes) {
  CpuMemory& memory = cpu_memory();
  std::shared_ptr<MemoryTracker> tracker = CountedAllocations::tracker_of_thread();
  if (bytes == 0) { return memory.before->allocate(bytes); }
  const bool counts = tracker != nullptr;
  CountedBlock block = counts ? CountedBlock{std::move(tracker), bytes} : CountedBlock{};
  c10::DataPtr data = memory.before->allocate(bytes);
  void* const address = data.get();
  const c10::Device device = data.device();
  // Memory that can be freed by its address needs no entry, unless it counts.
  if (!counts && data.get_context() == address && memory.before->raw_deleter() != nullptr &&
      data.get_deleter() == memory.before->raw_deleter()) {
    data.release_context();
  } else {
    block.hold(std::move(data));
    memory.blocks.put(address, std::move(block));
  }
  return {address, address, &end_block, device};
}

// The context of its memory is the memory: libtorch then lets operators allocate without tensors
// (raw_allocate) and copies storages lazily.
class CountingAllocator final : public c10::Allocator {
 public:
  // The base declares one of the two: the first until libtorch 2.2, the second since.
  c10::DataPtr allocate(std::size_t bytes) const { return counted(bytes); }  // may override
  c10::DataPtr allocate(std::size_t bytes) { return counted(bytes); }        // may override
  c10::DeleterFnPtr raw_deleter() const override { return &end_block; }
  // libtorch 2 declares it.
  void copy_data(void* to, const void* from, std::size_t bytes) const {  // may override
    std::memcpy(to, from, bytes);
  }
};

void wrap_cpu_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    cpu_memory().before = c10::GetCPUAllocator();
    // The highest priority: a program's own allocator may have one.
    c10::SetCPUAllocator(new CountingAllocator,  // never destroyed
                         std::numeric_limits<std::uint8_t>::max());
  });
}

}  // namespace

CountedAllocations::CountedAllocations(World& world) : tracker_{world.memory().shared_from_this()} {
  if (world.options().device == DeviceKind::cuda && !world.simulated()) {
    stream_.emplace(world);
    return;
  }
  wrap_cpu_allocator();
  before_ = newest;
  if (before_ != nullptr) { before_->after_ = this; }
  newest = this;
}

CountedAllocations::~CountedAllocations() {
  if (stream_) { return; }
  if (before_ != nullptr) { before_->after_ = after_; }
  (after_ != nullptr ? after_->before_ : newest) = before_;
}

std::shared_ptr<MemoryTracker> CountedAllocations::tracker_of_thread() {
  return newest != nullptr ? newest->tracker_ : nullptr;
}

}  // namespace tessera::torch

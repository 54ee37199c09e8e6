#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tessera/memory/tracker.hpp"

namespace tessera::torch {

/// The name of libtorch's tensors in records and in errors.
inline constexpr const char* kTensorsOfLibtorch = "tensors of libtorch";

/// Memory that libtorch holds, and the account that counts it. It frees the memory first, then its
/// bytes.
class CountedBlock {
 public:
  CountedBlock() = default;
  /// Counts `bytes`; throws OutOfMemory if there is no room. The memory is set later.
  CountedBlock(std::shared_ptr<MemoryTracker> tracker, std::size_t bytes);
  CountedBlock(CountedBlock&& other) noexcept;
  CountedBlock& operator=(CountedBlock&&) = delete;
  ~CountedBlock();

  void hold(c10::DataPtr memory) noexcept { memory_ = std::move(memory); }

 private:
  std::shared_ptr<MemoryTracker> tracker_;
  std::size_t bytes_ = 0;
  c10::DataPtr memory_;
};

/// Blocks by the address of their memory. Threads: any.
class CountedBlocks {
 public:
  void put(const void* address, CountedBlock block);
  /// Ends the block at `address`. Returns whether there was one.
  bool end(const void* address) noexcept;

 private:
  // Several, so that ranks that are threads seldom wait for each other.
  struct Part {
    std::mutex mutex;
    std::unordered_map<const void*, CountedBlock> blocks;
  };
  [[nodiscard]] Part& part_of(const void* address) noexcept;

  std::array<Part, 32> parts_;
};

}  // namespace tessera::torch

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "emulated_cuda/races/knowledge.hpp"
#include "emulated_cuda/races/record.hpp"
#include "emulated_cuda/races/shadow.hpp"

namespace emulated_cuda::races {

/// Threads that see a fence.
enum class Scope : std::uint8_t { block, device };

/// The order of a grid's accesses: which of them happen before what a thread does now.
///
/// Blocks run one after another, so a time belongs to one block, and each barrier, fence and
/// __syncwarp begins a new time. Accesses are ordered by
/// - the order of one thread's own,
/// - a barrier between those of a block,
/// - __syncwarp between those of a warp's lanes in its mask,
/// - a fence, an atomic operation, another one at the same address, and a fence, between those of
///   any threads: what the first fence's thread knew then, the last fence's thread knows. The
///   fences' scopes must contain both threads.
class Clock {
 public:
  Clock(Shadow& shadow, unsigned threads);

  void begin_block();
  void pass_barrier();
  void pass_warp_barrier(unsigned warp, unsigned mask);
  void pass_fence(unsigned thread, Scope scope);
  /// An atomic write passes on what the thread's last fences released, an atomic read takes what
  /// was passed on there. `memory_began`: the begin of the block for shared memory, of the grid for
  /// other memory.
  void write_atomically(unsigned thread, const void* data, std::uint64_t memory_began);
  void read_atomically(unsigned thread, const void* data, std::uint64_t memory_began);

  [[nodiscard]] std::uint64_t now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t grid_began() const noexcept { return grid_began_; }
  [[nodiscard]] std::uint64_t block_began() const noexcept { return block_began_; }
  [[nodiscard]] std::uint64_t barrier() const noexcept { return barrier_; }

  /// Whether `record`, of this grid, happens before what `thread` does now.
  [[nodiscard]] bool is_before(Record record, unsigned thread) const {
    if (record.time() >= block_began_) {
      if (record.thread() == thread || record.time() < barrier_) { return true; }
      if (record.warp() == thread / 32 &&
          record.time() < warps_[thread / 32].known[thread % 32][record.thread() % 32]) {
        return true;
      }
    }
    return has_acquired(record, thread);
  }

 private:
  /// known[a][b]: accesses of lane b before this time happen before what lane a does now.
  struct Warp {
    std::array<std::array<std::uint64_t, 32>, 32> known{};
  };
  /// What fences and atomic operations of one thread have passed on, by scope.
  struct Passed {
    Knowledge block;
    Knowledge device;
  };
  struct Fences {
    Passed released;  ///< by the thread's last fences
    Passed seen;      ///< in atomic operations since its last fence
    Knowledge acquired;
  };
  struct Location {
    const void* data;
    std::uint64_t memory_began;
    auto operator<=>(const Location&) const = default;
  };
  struct Posted {
    std::uint64_t block_began = 0;  ///< of the block that `passed.block` is for
    Passed passed;
  };

  [[nodiscard]] bool has_acquired(Record record, unsigned thread) const;
  [[nodiscard]] Knowledge all_of(unsigned thread) const;

  Shadow& shadow_;
  std::uint64_t grid_began_;
  std::uint64_t block_began_ = 0;
  std::uint64_t barrier_ = 0;
  std::uint64_t now_ = 0;
  std::vector<Warp> warps_;
  std::map<unsigned, Fences> fences_;  // of the block's threads that passed any
  Knowledge acquired_;                 // by the block, up to its last barrier
  std::map<Location, Posted> posted_;
};

}  // namespace emulated_cuda::races

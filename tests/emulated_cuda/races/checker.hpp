#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulated_cuda/observer.hpp"
#include "emulated_cuda/races/clock.hpp"
#include "emulated_cuda/races/places.hpp"
#include "emulated_cuda/races/shadow.hpp"
#include "emulated_cuda/races/spaces.hpp"

namespace emulated_cuda::races {

enum class Access : std::uint8_t { read, write };

/// Ends the process at the first race between the threads of one grid: two accesses to a byte by
/// different threads, at least one of them a write and not both atomic, that nothing orders
/// (Clock).
class Checker : public GridObserver {
 public:
  Checker(const dim3& grid, const dim3& block);
  ~Checker() override;
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  void begin_block(uint3 block) override;
  void run_thread(unsigned thread, const Context& stack) override;
  void pass_barrier() override { clock_.pass_barrier(); }
  void pass_warp_barrier(unsigned warp, unsigned mask) override {
    clock_.pass_warp_barrier(warp, mask);
  }
  void read(unsigned lane, const void* from, std::size_t bytes) override;
  void begin_copy(void* to, std::size_t width, const void* from, std::size_t bytes) override;
  void finish_copy(void* to, std::size_t width, const void* from, std::size_t bytes) override;

  /// The running thread's access from this place in the code.
  void access(Access access, Kind kind, const void* data, std::size_t bytes, const void* code) {
    const Space space = spaces_.of(data);
    if (space == Space::own) { return; }
    check({access, data, bytes, space, {clock_.now(), thread_, kind, code_number(code)}});
    if (kind == Kind::atomic) { pass_on(access, data, space); }
  }
  void pass_fence(Scope scope) { clock_.pass_fence(thread_, scope); }

 private:
  struct Accessed {
    Access access;
    const void* data;
    std::size_t bytes;
    Space space;
    Record record;
  };

  void check(const Accessed& now);
  void pass_on(Access access, const void* data, Space space);
  [[nodiscard]] std::uint64_t began(Space space) const noexcept {
    return space == Space::shared ? clock_.block_began() : clock_.grid_began();
  }
  void check_against(const Accesses& earlier, Access access, const Accessed& now,
                     std::uint64_t memory_began) const;
  void remember(Accesses& accesses, Record now, std::uint64_t memory_began) const;
  Record* least_needed(Accesses& accesses, Record now, std::uint64_t memory_began) const;
  [[noreturn]] void report(Record earlier, Access access, const Accessed& now) const;
  [[nodiscard]] std::string where(Record record) const;

  std::unique_ptr<Shadow> shadow_;
  Clock clock_;
  Spaces spaces_;
  unsigned threads_;
  unsigned thread_ = 0;
  std::vector<std::pair<std::uint64_t, uint3>> blocks_;  // by the times of their begins
};

/// The checker of the grid whose thread calls this; null outside of grids.
[[nodiscard]] Checker* checker() noexcept;

}  // namespace emulated_cuda::races

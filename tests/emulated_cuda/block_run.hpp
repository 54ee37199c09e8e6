#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulated_cuda/block.hpp"
#include "emulated_cuda/fiber.hpp"
#include "emulated_cuda/late_copies.hpp"
#include "emulated_cuda/observer.hpp"
#include "emulated_cuda/order.hpp"

namespace emulated_cuda {

/// Runs the threads of blocks, one block after another.
///
/// Threads run as plain calls, one after another, on one stack. A thread that waits for others
/// keeps the stack, and the next thread runs on another. A kernel without barriers costs one call
/// per thread.
class BlockRun {
 public:
  BlockRun(const dim3& grid, const dim3& block, const std::function<void()>& body,
           std::uint64_t draw);
  ~BlockRun();
  BlockRun(const BlockRun&) = delete;
  BlockRun& operator=(const BlockRun&) = delete;

  void run(uint3 block_index);

  /// Implement block_barrier and warp_call for the running thread.
  int barrier(int value);
  std::uint64_t call_warp(const WarpCall& call);
  /// The late copies of the running thread.
  LateCopies& late_copies() { return threads_[current_].late_copies; }
  [[nodiscard]] GridObserver* observer() const noexcept { return observer_.get(); }

 private:
  enum class State : std::uint8_t { waiting_to_start, runs, at_barrier, in_warp_call, done };
  struct Thread {
    State state = State::waiting_to_start;
    Fiber* fiber = nullptr;
    WarpCall call;
    std::uint64_t result = 0;
    LateCopies late_copies;
  };

  static void fiber_body(void* run);
  void run_threads();
  void resume(unsigned thread);
  void start_fiber();
  void become_current(unsigned thread);
  void leave_fiber();
  void wait_for_others();
  void release_barrier();
  void finish_warp_call(unsigned warp, unsigned mask);
  void work_together(unsigned warp, const WarpCall& call) const;
  [[nodiscard]] std::uint64_t result_of(unsigned warp, unsigned lane, unsigned mask) const;
  [[nodiscard]] unsigned source_of(const WarpCall& call, unsigned lane) const;
  [[nodiscard]] std::string where(unsigned thread) const;
  [[noreturn]] void report_stuck() const;
  void check_mask(const WarpCall& call) const;

  dim3 block_;
  const std::function<void()>& body_;
  ThreadOrder order_;
  std::vector<unsigned> start_order_;
  std::vector<unsigned> lanes_in_order_;
  std::vector<Thread> threads_;
  std::unique_ptr<GridObserver> observer_;
  struct Lanes {
    unsigned in_call = 0;
    unsigned done = 0;
  };
  std::vector<Lanes> warps_;
  std::vector<unsigned> ready_;  // the last one runs next
  std::unique_ptr<FiberSet> fibers_;
  std::vector<Fiber*> idle_;
  std::size_t fibers_made_ = 0;
  Context scheduler_;
  Fiber* current_fiber_ = nullptr;
  unsigned current_ = 0;
  unsigned started_ = 0;
  unsigned done_ = 0;
  unsigned arrived_ = 0;
  int barrier_sum_ = 0;
  int barrier_result_ = 0;
};

}  // namespace emulated_cuda

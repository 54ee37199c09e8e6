#include "emulated_cuda/block_run.hpp"

#include <array>
#include <bit>
#include <exception>
#include <utility>

#include "emulated_cuda/dynamic_shared.hpp"
#include "emulated_cuda/grid.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/symbols.hpp"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace emulated_cuda {
namespace {

constinit thread_local BlockRun* running = nullptr;

BlockRun& block_that_runs() {
  if (running == nullptr) { misuse("a barrier or a call of a warp outside of a kernel"); }
  return *running;
}

}  // namespace

int block_barrier(int value) {
  return block_that_runs().barrier(value);
}

std::uint64_t warp_call(const WarpCall& call) {
  return block_that_runs().call_warp(call);
}

void copy_late(void* to, const void* from, int bytes) {
  block_that_runs().late_copies().issue(to, from, bytes);
}
void close_late_copies() {
  block_that_runs().late_copies().close();
}
void finish_late_copies(int groups) {
  block_that_runs().late_copies().finish(groups);
}

GridObserver* observer() {
  return block_that_runs().observer();
}

BlockRun::BlockRun(const dim3& grid, const dim3& block, const std::function<void()>& body,
                   std::uint64_t draw)
    : block_{block},
      body_{body},
      order_{block.x * block.y * block.z, draw},
      threads_(std::size_t{block.x} * block.y * block.z),
      observer_{observe_grid(grid, block)},
      warps_((threads_.size() + 31) / 32),
      fibers_{borrow_fibers()} {
  running = this;
}

BlockRun::~BlockRun() {
  running = nullptr;
  give_back(std::move(fibers_));
}

void BlockRun::run(uint3 block_index) {
  blockIdx = block_index;
  if (observer_) { observer_->begin_block(block_index); }
  for (Thread& thread : threads_) {
    thread.state = State::waiting_to_start;
    thread.late_copies.drop();
  }
  for (Lanes& lanes : warps_) { lanes = {}; }
  started_ = done_ = 0;
  start_order_ = order_.next();
  while (done_ < threads_.size()) {
    if (!ready_.empty()) {
      const unsigned thread = ready_.back();
      ready_.pop_back();
      resume(thread);
    } else if (started_ < threads_.size()) {
      start_fiber();
    } else {
      report_stuck();
    }
  }
}

void BlockRun::start_fiber() {
  if (idle_.empty()) {
    Fiber& fiber = fibers_->at(fibers_made_++);
    fiber.start(&fiber_body, this);
    idle_.push_back(&fiber);
  }
  current_fiber_ = idle_.back();
  idle_.pop_back();
  switch_context(scheduler_, current_fiber_->context());
}

void BlockRun::resume(unsigned thread) {
  current_fiber_ = threads_[thread].fiber;
  become_current(thread);
  switch_context(scheduler_, current_fiber_->context());
}

void BlockRun::fiber_body(void* run) {
  auto& self = *static_cast<BlockRun*>(run);
  enter_context(self.scheduler_);
  for (;;) {
    self.run_threads();
    self.idle_.push_back(self.current_fiber_);
    self.leave_fiber();
  }
}

/// Resumes ready threads before it starts new ones, so few threads of a block are suspended at
/// once.
void BlockRun::run_threads() {
  while (ready_.empty() && started_ < threads_.size()) {
    become_current(start_order_[started_++]);
    threads_[current_].state = State::runs;
    try {
      body_();
    } catch (const std::exception& error) {
      misuse(std::string{"a kernel throws: "} + error.what());
    }
    threads_[current_].state = State::done;
    warps_[current_ / 32].done |= 1U << (current_ % 32);
    ++done_;
  }
}

void BlockRun::leave_fiber() {
  switch_context(current_fiber_->context(), scheduler_);
}

void BlockRun::become_current(unsigned thread) {
  current_ = thread;
  if (observer_) { observer_->run_thread(thread, current_fiber_->context()); }
  threadIdx = {current_ % block_.x, current_ / block_.x % block_.y,
               current_ / (block_.x * block_.y)};
}

/// Runs other threads; returns when the calling thread is ready again.
void BlockRun::wait_for_others() {
  threads_[current_].fiber = current_fiber_;
  leave_fiber();
}

int BlockRun::barrier(int value) {
  if (threads_.size() == 1) { return value; }
  if (done_ > 0) {
    misuse("a barrier that not all threads of the block reach: " + where(current_) +
           " waits at __syncthreads, " + std::to_string(done_) + " of " +
           std::to_string(threads_.size()) + " threads have left");
  }
  threads_[current_].state = State::at_barrier;
  barrier_sum_ += value;
  if (++arrived_ == threads_.size()) { release_barrier(); }
  wait_for_others();
  return barrier_result_;
}

void BlockRun::release_barrier() {
  barrier_result_ = std::exchange(barrier_sum_, 0);
  arrived_ = 0;
  if (observer_) { observer_->pass_barrier(); }
  const std::vector<unsigned>& order = order_.next();
  ready_.assign(order.rbegin(), order.rend());
  for (Thread& thread : threads_) { thread.state = State::runs; }
}

std::uint64_t BlockRun::call_warp(const WarpCall& call) {
  check_mask(call);
  Thread& thread = threads_[current_];
  thread.call = call;
  thread.state = State::in_warp_call;
  const unsigned warp = current_ / 32;
  unsigned& in_call = warps_[warp].in_call;
  in_call |= 1U << (current_ % 32);
  if ((in_call & call.mask) == call.mask) {
    in_call &= ~call.mask;
    finish_warp_call(warp, call.mask);
  }
  wait_for_others();
  return thread.result;
}

void BlockRun::check_mask(const WarpCall& call) const {
  const unsigned warp = current_ / 32;
  const std::size_t before = std::size_t{32} * warp;
  const unsigned in_block =
      threads_.size() >= before + 32 ? 0xFFFFFFFFU : (1U << (threads_.size() - before)) - 1;
  if ((call.mask >> (current_ % 32) & 1U) == 0) {
    misuse("the mask of a warp's call lacks the lane that makes it: " + where(current_));
  }
  if ((call.mask & ~in_block) != 0) {
    misuse("the mask of a warp's call names lanes that the block does not have: " +
           where(current_));
  }
  if ((call.mask & warps_[warp].done) != 0) {
    misuse("the mask of a warp's call names lanes that have left the kernel: " + where(current_));
  }
  if (call.width < 1 || call.width > 32 ||
      !std::has_single_bit(static_cast<unsigned>(call.width))) {
    misuse("the width of a shuffle is no power of two up to 32: " + where(current_));
  }
}

void BlockRun::finish_warp_call(unsigned warp, unsigned mask) {
  const WarpCall& mine = threads_[current_].call;
  const auto in_call = [&](unsigned lane) { return (mask >> lane & 1U) != 0; };
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!in_call(lane)) { continue; }
    const WarpCall& other = threads_[32 * warp + lane].call;
    if (other.mask != mask || other.kind != mine.kind || other.work != mine.work) {
      misuse("lanes of a warp make different calls, or with different masks: " + where(current_) +
             " and " + where(32 * warp + lane));
    }
  }
  if (mine.kind == WarpCall::together) {
    work_together(warp, mine);
  } else {
    // Only __syncwarp orders memory: shuffles and votes do not (CUDA C++ Programming Guide).
    if (mine.kind == WarpCall::sync && observer_) { observer_->pass_warp_barrier(warp, mask); }
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (in_call(lane)) { threads_[32 * warp + lane].result = result_of(warp, lane, mask); }
    }
  }
  order_.lanes(lanes_in_order_);
  for (const unsigned lane : lanes_in_order_) {
    if (!in_call(lane)) { continue; }
    threads_[32 * warp + lane].state = State::runs;
    ready_.push_back(32 * warp + lane);
  }
}

void BlockRun::work_together(unsigned warp, const WarpCall& call) const {
  std::array<std::uint64_t, 32> values;
  for (unsigned lane = 0; lane < 32; ++lane) {
    values[lane] = threads_[std::size_t{32} * warp + lane].call.value;
  }
  call.work(values.data());
}

std::uint64_t BlockRun::result_of(unsigned warp, unsigned lane, unsigned mask) const {
  const Thread* const lanes = &threads_[std::size_t{32} * warp];
  const WarpCall& call = lanes[lane].call;
  if (call.kind == WarpCall::sync) { return 0; }
  if (call.kind != WarpCall::ballot && call.kind != WarpCall::match) {
    const unsigned source = source_of(call, lane);
    if ((mask >> source & 1U) == 0) {
      misuse("a shuffle reads from a lane that does not take part: " + where(32 * warp + lane));
    }
    return lanes[source].call.value;
  }
  std::uint64_t bits = 0;
  for (unsigned other = 0; other < 32; ++other) {
    if ((mask >> other & 1U) == 0) { continue; }
    const std::uint64_t value = lanes[other].call.value;
    const bool counts = call.kind == WarpCall::ballot ? value != 0 : value == call.value;
    bits |= std::uint64_t{counts ? 1U : 0U} << other;
  }
  return bits;
}

/// A shuffle stays within its segment of `width` lanes; beyond it, a lane gets its own value.
unsigned BlockRun::source_of(const WarpCall& call, unsigned lane) const {
  const auto width = static_cast<unsigned>(call.width);
  const auto operand = static_cast<unsigned>(call.operand);
  const unsigned first = lane & ~(width - 1);
  const unsigned last = first + width - 1;
  switch (call.kind) {
    case WarpCall::from_lane:
      return first + (operand & (width - 1));
    case WarpCall::up:
      return lane >= first + operand ? lane - operand : lane;
    case WarpCall::down:
      return lane + operand <= last ? lane + operand : lane;
    default:
      return (lane ^ operand) <= last ? lane ^ operand : lane;
  }
}

std::string BlockRun::where(unsigned thread) const {
  return "block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
         std::to_string(blockIdx.z) + ") thread " + std::to_string(thread) + " of " +
         std::to_string(threads_.size());
}

void BlockRun::report_stuck() const {
  std::string text = "the threads of a block wait for each other: ";
  unsigned at_barrier = 0;
  unsigned in_call = 0;
  unsigned example = 0;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state == State::at_barrier) { ++at_barrier; }
    if (threads_[i].state == State::in_warp_call) { ++in_call; }
    if (threads_[i].state != State::done) { example = i; }
  }
  misuse(text + std::to_string(at_barrier) + " at __syncthreads, " + std::to_string(in_call) +
         " in a call of their warp, " + std::to_string(done_) + " have left; one that waits is " +
         where(example));
}

void run_grid(const dim3& grid, const dim3& block, std::size_t shared_bytes,
              const std::function<void()>& body, const void* kernel, std::uint64_t draw) {
  gridDim = grid;
  blockDim = block;
  const SharedArrays shared{kernel};
  const DynamicShared dynamic{shared_bytes};
  BlockRun run{grid, block, body, draw};
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  std::vector<unsigned> order;
  Order{draw / 3}.permute(static_cast<unsigned>(blocks), order);
  for (const unsigned index : order) {
    shared.poison();
    dynamic.poison();
    run.run({index % grid.x, index / grid.x % grid.y, index / (grid.x * grid.y)});
    dynamic.check_surroundings();
  }
}

}  // namespace emulated_cuda

#include "emulated_cuda/races/clock.hpp"

#include <algorithm>

namespace emulated_cuda::races {

Clock::Clock(Shadow& shadow, unsigned threads)
    : shadow_{shadow}, grid_began_{shadow.begin_grid()}, warps_((threads + 31) / 32) {}

void Clock::begin_block() {
  now_ = block_began_ = barrier_ = shadow_.tick();
  fences_.clear();
  acquired_ = {};
}

void Clock::pass_barrier() {
  now_ = barrier_ = shadow_.tick();
  for (const auto& [thread, fences] : fences_) { acquired_.add(fences.acquired); }
}

void Clock::pass_warp_barrier(unsigned warp, unsigned mask) {
  now_ = shadow_.tick();
  auto& known = warps_[warp].known;
  std::array<std::uint64_t, 32> together{};
  Knowledge acquired;
  const auto each_lane = [&](const auto& visit) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1U) != 0) { visit(lane); }
    }
  };
  each_lane([&](unsigned lane) {
    std::ranges::transform(together, known[lane], together.begin(), std::ranges::max);
    if (const auto found = fences_.find(32 * warp + lane); found != fences_.end()) {
      acquired.add(found->second.acquired);
    }
  });
  each_lane([&](unsigned lane) { together[lane] = now_; });
  each_lane([&](unsigned lane) {
    known[lane] = together;
    if (!acquired.empty()) { fences_[32 * warp + lane].acquired.add(acquired); }
  });
}

Knowledge Clock::all_of(unsigned thread) const {
  Knowledge all = acquired_;
  if (const auto found = fences_.find(thread); found != fences_.end()) {
    all.add(found->second.acquired);
  }
  all.add(Knowledge::kAllThreads, block_began_, barrier_);
  all.add(thread, block_began_, now_ + 1);
  const auto& known = warps_[thread / 32].known[thread % 32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (known[lane] > barrier_) { all.add(thread / 32 * 32 + lane, block_began_, known[lane]); }
  }
  return all;
}

void Clock::pass_fence(unsigned thread, Scope scope) {
  Fences& fences = fences_[thread];
  fences.acquired.add(fences.seen.block);
  if (scope == Scope::device) { fences.acquired.add(fences.seen.device); }
  fences.seen = {};
  fences.released.block = all_of(thread);
  if (scope == Scope::device) { fences.released.device = fences.released.block; }
  now_ = shadow_.tick();
}

void Clock::write_atomically(unsigned thread, const void* data, std::uint64_t memory_began) {
  const auto found = fences_.find(thread);
  if (found == fences_.end()) { return; }
  Posted& posted = posted_[{data, memory_began}];
  if (posted.block_began != block_began_) { posted.passed.block = {}; }
  posted.block_began = block_began_;
  posted.passed.block.add(found->second.released.block);
  posted.passed.device.add(found->second.released.device);
}

void Clock::read_atomically(unsigned thread, const void* data, std::uint64_t memory_began) {
  const auto found = posted_.find({data, memory_began});
  if (found == posted_.end()) { return; }
  const Posted& posted = found->second;
  Passed& seen = fences_[thread].seen;
  if (posted.block_began == block_began_) { seen.block.add(posted.passed.block); }
  seen.device.add(posted.passed.device);
}

bool Clock::has_acquired(Record record, unsigned thread) const {
  if (acquired_.contains(record)) { return true; }
  const auto found = fences_.find(thread);
  return found != fences_.end() && found->second.acquired.contains(record);
}

}  // namespace emulated_cuda::races

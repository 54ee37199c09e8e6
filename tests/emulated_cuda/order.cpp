#include "emulated_cuda/order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace emulated_cuda {

void Order::permute(unsigned count, std::vector<unsigned>& order) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0U);
  if (kind_ == Kind::backward) { std::reverse(order.begin(), order.end()); }
  if (kind_ != Kind::shuffled) { return; }
  for (unsigned i = count; i > 1; --i) {
    draw_ = draw_ * 6364136223846793005ULL + 1442695040888963407ULL;
    std::swap(order[i - 1], order[(draw_ >> 33U) % i]);
  }
}

ThreadOrder::ThreadOrder(unsigned threads, std::uint64_t draw) : threads_{threads}, order_{draw} {}

const std::vector<unsigned>& ThreadOrder::next() {
  order_.permute((threads_ + 31) / 32, warps_);
  order_.permute(32, lanes_);
  all_.clear();
  for (const unsigned warp : warps_) {
    for (const unsigned lane : lanes_) {
      const unsigned thread = 32 * warp + lane;
      if (thread < threads_) { all_.push_back(thread); }
    }
  }
  return all_;
}

}  // namespace emulated_cuda

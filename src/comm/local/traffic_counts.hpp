#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace tessera::comm {

/// Bytes from each rank of a job to each other. Threads: any.
class TrafficCounts {
 public:
  explicit TrafficCounts(int ranks)
      : ranks_{static_cast<std::size_t>(ranks)}, bytes_(ranks_ * ranks_) {}

  // Relaxed: ranks meet under a lock between one adding and another reading.
  void add(int from, int to, std::size_t bytes) noexcept {
    bytes_[at(from) + static_cast<std::size_t>(to)].fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] std::vector<std::size_t> sent_by(int rank) const {
    std::vector<std::size_t> sent;
    for (std::size_t i = 0; i < ranks_; ++i) {
      sent.push_back(bytes_[at(rank) + i].load(std::memory_order_relaxed));
    }
    return sent;
  }

 private:
  [[nodiscard]] std::size_t at(int from) const noexcept {
    return static_cast<std::size_t>(from) * ranks_;
  }

  std::size_t ranks_;
  std::vector<std::atomic<std::size_t>> bytes_;
};

}  // namespace tessera::comm

#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "emulated_cuda/races/record.hpp"

namespace emulated_cuda::races {

/// Accesses that a thread knows to have happened, besides those that barriers order: of one thread
/// of a block, or of all its threads, from the block's begin up to a time.
class Knowledge {
 public:
  static constexpr unsigned kAllThreads = 1U << Record::kThreadBits;

  void add(unsigned thread, std::uint64_t from, std::uint64_t to) {
    std::uint64_t& known = ends_[{thread, from}];
    if (known < to) { known = to; }
  }
  void add(const Knowledge& other) {
    for (const auto& [which, to] : other.ends_) { add(which.first, which.second, to); }
  }
  [[nodiscard]] bool contains(Record record) const {
    return contains(record.thread(), record.time()) || contains(kAllThreads, record.time());
  }
  [[nodiscard]] bool empty() const noexcept { return ends_.empty(); }

 private:
  [[nodiscard]] bool contains(unsigned thread, std::uint64_t time) const {
    const auto after = ends_.upper_bound({thread, time});
    if (after == ends_.begin()) { return false; }
    const auto& [which, to] = *std::prev(after);
    return which.first == thread && time < to;
  }

  std::map<std::pair<unsigned, std::uint64_t>, std::uint64_t> ends_;  // by thread and begin
};

}  // namespace emulated_cuda::races

#pragma once

#include <cstdint>
#include <vector>

namespace emulated_cuda {

/// An order of items that a GPU may run in any order: forward, backward or shuffled, drawn once.
class Order {
 public:
  explicit Order(std::uint64_t draw) : draw_{draw}, kind_{static_cast<Kind>(draw % 3)} {}

  /// Sets `order` to a permutation of [0, count), a new one at every call if shuffled.
  void permute(unsigned count, std::vector<unsigned>& order);

 private:
  enum class Kind : std::uint8_t { onward, backward, shuffled };
  std::uint64_t draw_;
  Kind kind_;
};

/// The order of a block's threads. A warp's lanes stay together, as on a GPU, so warp calls suspend
/// few threads at once.
class ThreadOrder {
 public:
  ThreadOrder(unsigned threads, std::uint64_t draw);

  /// Returns the order, a new one at every call if shuffled.
  const std::vector<unsigned>& next();
  void lanes(std::vector<unsigned>& order) { order_.permute(32, order); }

 private:
  unsigned threads_;
  Order order_;
  std::vector<unsigned> warps_;
  std::vector<unsigned> lanes_;
  std::vector<unsigned> all_;
};

}  // namespace emulated_cuda

#pragma once

#include <cstdint>
#include <vector>

namespace emulated_cuda {

/// The order of things that a GPU runs in any order: forward, backward or shuffled, drawn once.
class Order {
 public:
  explicit Order(std::uint64_t draw) : draw_{draw}, kind_{static_cast<Kind>(draw % 3)} {}

  /// A permutation of [0, count), another at every call if shuffled.
  void permute(unsigned count, std::vector<unsigned>& order);

 private:
  enum class Kind : std::uint8_t { onward, backward, shuffled };
  std::uint64_t draw_;
  Kind kind_;
};

/// The threads of a block: a warp's lanes stay together, as on a GPU, so that calls of a warp hold
/// up few threads at once.
class ThreadOrder {
 public:
  ThreadOrder(unsigned threads, std::uint64_t draw);

  /// Makes a new one at every call if shuffled.
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

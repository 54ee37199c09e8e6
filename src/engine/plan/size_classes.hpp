#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::engine {

/// Neighbours in a list of sizes that share a ring of slots, each slot as large as the last of
/// them.
struct SizeClass {
  std::size_t first = 0;
  std::size_t count = 0;
  int slots = 0;               ///< the smaller of `count` and the number asked for
  std::size_t slot_bytes = 0;  ///< the largest size, as an arena counts it
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(slots) * slot_bytes;
  }
};

/// Cuts `sizes`, which ascend, into the classes whose slots take the fewest bytes, at most `slots`
/// slots a class; of equal divisions the one with the fewest classes. No other division into
/// classes, of neighbours or not, takes fewer. Equal sizes are in one class.
[[nodiscard]] std::vector<SizeClass> size_classes(std::span<const std::size_t> sizes, int slots);

}  // namespace tessera::engine

#pragma once

#include <cstdint>

#include "kernels/support/host_device.hpp"

namespace tessera::kernels {

/// A row of arrays whose rows lie in groups of `size` side by side: its group, and its index in it.
struct GroupedRow {
  std::int64_t group;
  std::int64_t index;

  TESSERA_HOST_DEVICE static constexpr GroupedRow of(std::int64_t row, std::int64_t size) noexcept {
    if (size == 1) { return {row, 0}; }  // saves the division
    return {row / size, row % size};
  }
  /// Where the row of `columns` elements begins in an array whose groups are `group_elems` apart.
  [[nodiscard]] TESSERA_HOST_DEVICE constexpr std::int64_t begin(
      std::int64_t group_elems, std::int64_t columns) const noexcept {
    return group * group_elems + index * columns;
  }
};

/// `group_elems`, or if it is 0 that of groups without gaps.
[[nodiscard]] constexpr std::int64_t group_elems_of(std::int64_t group_elems, std::int64_t group,
                                                    std::int64_t columns) noexcept {
  return group_elems == 0 ? group * columns : group_elems;
}

}  // namespace tessera::kernels

#pragma once

#include <cstdint>

namespace tessera {

/// How a reduction combines the elements that the ranks hold at one index.
enum class ReduceOp : std::uint8_t {
  sum,  ///< their sum
  max,  ///< their maximum
};

}  // namespace tessera

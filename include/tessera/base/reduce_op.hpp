#pragma once

#include <cstdint>

namespace tessera {

/// How elements that several ranks hold become one.
enum class ReduceOp : std::uint8_t { sum, max };

}  // namespace tessera

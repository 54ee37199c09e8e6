#pragma once

#include <cstdint>

namespace tessera {

/// How the elements that several ranks hold at one place become one: their sum or their maximum.
enum class ReduceOp : std::uint8_t { sum, max };

}  // namespace tessera

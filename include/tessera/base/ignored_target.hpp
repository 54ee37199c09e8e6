#pragma once

#include <cstdint>

namespace tessera {

/// The target of a token that a loss does not count: PyTorch's default `ignore_index`. Its row adds
/// nothing to the loss, and the gradient of its logits is 0.
inline constexpr std::int32_t kIgnoredTarget = -100;

}  // namespace tessera

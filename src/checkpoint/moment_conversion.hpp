#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// Moments of 8 bits as values and back, on the host (kernels/update/moment_code.hpp). Blocks have
// kMomentBlock elements, the last one may have fewer; `moment` is its index: 0 the first, 1 the
// second, which is kept by its square root.

/// values[i] = what codes[i] stands for; codes[0] is element `first` of block 0 of `scales`.
void dequantise_moment(int moment, std::int64_t first, std::span<const std::uint8_t> codes,
                       std::span<const float> scales, std::span<float> values);

/// The inverse, rounded to nearest. Either of `codes` and `scales` may be empty: it is not written.
void quantise_moment(int moment, std::span<const float> values, std::span<std::uint8_t> codes,
                     std::span<float> scales);

}  // namespace tessera

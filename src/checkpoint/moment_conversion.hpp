#pragma once

#include <cstdint>
#include <span>

namespace tessera::checkpoint {

// Conversion of 8-bit moments to values and back, on the host (kernels/update/moment_code.hpp).
// Blocks have kMomentBlock elements, the last one may have fewer. `moment` is the moment's index: 0
// for the first, 1 for the second, which is stored as its square root.

/// values[i] = the value of codes[i]; codes[0] is element `first` of block 0 of `scales`.
void dequantise_moment(int moment, std::int64_t first, std::span<const std::uint8_t> codes,
                       std::span<const float> scales, std::span<float> values);

/// The inverse, rounded to nearest. `codes` or `scales` may be empty; it is then not written.
void quantise_moment(int moment, std::span<const float> values, std::span<std::uint8_t> codes,
                     std::span<float> scales);

}  // namespace tessera::checkpoint

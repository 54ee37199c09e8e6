#pragma once

#include <cstdint>
#include <span>

#include "kernels/support/master_parts.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// What a normal number depends on besides its element.
struct NormalKey {
  std::uint64_t seed = 0;
  std::uint32_t id = 0;  ///< of the parameter
};

/// No number n(e) below is larger: sqrt(-2 log(1 / 2^32)), rounded up.
inline constexpr double kMostNormal = 6.6605;

/// to[i] = the requested part of stddev * n(first + i), rounded from fp32. n(e) is number e % 4 of
/// the four that Box-Muller makes, in fp64, of the four words w of philox4x32({low, high of e / 4,
/// id, 0}, seed):
///
///   r = sqrt(-2 log((w[0] + 1) / 2^32))    a = 2 pi w[1] / 2^32    r cos a, r sin a
///
/// from w[0] and w[1], then the same from w[2] and w[3], each rounded to fp32.
///
/// Backends may differ in bits: each uses its library's logarithm, sine and cosine, which are
/// within 2 units in the last place of fp64. These errors enter with a factor of 1/2 from the
/// logarithm and 1 from sine and cosine, so before rounding to fp32 two backends' numbers differ by
/// less than 8 such units, 2^-49 of the number. They round to the same fp32 number, or, about once
/// in 2^24 elements, when a rounding boundary lies between them, to neighbours. After the product
/// with stddev, itself rounded, the difference is below 2^-22 of the number, and one step in 16
/// bits.
using NormalKernel = void(Values to, MasterPart part, const NormalKey& key, std::int64_t first,
                          float stddev, std::int64_t elems, Stream stream);

/// The same on the host, computed at once by the calling thread, in fp32.
void make_normal(const NormalKey& key, std::int64_t first, float stddev, std::span<float> out);

namespace cpu {
NormalKernel fill_normal;
}
namespace cuda {
NormalKernel fill_normal;
}

}  // namespace tessera::kernels

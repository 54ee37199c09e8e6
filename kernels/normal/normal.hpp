#pragma once

#include <cstdint>
#include <span>

#include "kernels/support/master_parts.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// What a normal number depends on beside its element.
struct NormalKey {
  std::uint64_t seed = 0;
  std::uint32_t id = 0;  ///< of the parameter
};

/// to[i] = that part of stddev * n(first + i), rounded from fp32, where n(e) is number e % 4 of the
/// four that Box-Muller makes of the four words w of philox4x32({low, high of e / 4, id, 0}, seed),
/// in fp64:
///
///   r = sqrt(-2 log((w[0] + 1) / 2^32))    a = 2 pi w[1] / 2^32    r cos a, r sin a
///
/// of w[0] and w[1], then the same of w[2] and w[3], each rounded to fp32.
///
/// Not the same bits on every backend: logarithm, sine and cosine are those of its library, each
/// within 2 units in the last place of fp64. They carry over with a factor of 1/2 from the
/// logarithm and 1 from sine and cosine, so that two backends' numbers differ by less than 8 such
/// units, 2^-49 of the number, before they are rounded to fp32: they give the same fp32 number,
/// or neighbours if a rounding boundary lies between, about once in 2^24 elements. After the
/// product with stddev, itself rounded, that is a difference below 2^-22 of the number, and in 16
/// bits one step.
using NormalKernel = void(Values to, MasterPart part, const NormalKey& key, std::int64_t first,
                          float stddev, std::int64_t elems, Stream stream);

/// The same on the host at once, on the calling thread, in fp32.
void make_normal(const NormalKey& key, std::int64_t first, float stddev, std::span<float> out);

namespace cpu {
NormalKernel fill_normal;
}
namespace cuda {
NormalKernel fill_normal;
}

}  // namespace tessera::kernels

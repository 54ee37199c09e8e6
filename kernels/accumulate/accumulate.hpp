#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// to[i] += from[i], in fp32. No overlap.
using AccumulateKernel = void(float* to, const float* from, std::int64_t elems, Stream stream);

/// to[i] *= factor.
using ScaleKernel = void(float* to, float factor, std::int64_t elems, Stream stream);

namespace cpu {
AccumulateKernel accumulate;
ScaleKernel scale;
}  // namespace cpu

}  // namespace tessera::kernels

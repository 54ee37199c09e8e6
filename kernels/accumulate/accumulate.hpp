#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// to[i] += from[i], computed in fp32 and rounded once to the dtype of `to` (to nearest, ties to
/// even). Each array is fp32, bf16 or fp16. No overlap.
using AccumulateKernel = void(Values to, ConstValues from, std::int64_t elems, Stream stream);

/// to[i] *= factor, computed in fp32 and rounded as above.
using ScaleKernel = void(Values to, float factor, std::int64_t elems, Stream stream);

namespace cpu {
AccumulateKernel accumulate;
ScaleKernel scale;
}  // namespace cpu
namespace cuda {
AccumulateKernel accumulate;
ScaleKernel scale;
}  // namespace cuda

}  // namespace tessera::kernels

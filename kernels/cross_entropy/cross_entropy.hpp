#pragma once

#include "tessera/kernels/cross_entropy.hpp"

namespace tessera::kernels {

using CrossEntropyKernel = void(const CrossEntropy& args, Stream stream);

namespace reference {
CrossEntropyKernel cross_entropy;
}
namespace cpu {
CrossEntropyKernel cross_entropy;
}
namespace cuda {
CrossEntropyKernel cross_entropy;
}

}  // namespace tessera::kernels

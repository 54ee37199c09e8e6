#pragma once

#include "tessera/kernels/dropout.hpp"

namespace tessera::kernels {

using DropoutKernel = void(const Dropout& args, Stream stream);

namespace reference {
DropoutKernel dropout;
}
namespace cpu {
DropoutKernel dropout;
}
namespace cuda {
DropoutKernel dropout;
}

}  // namespace tessera::kernels

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tessera::cuda {

/// *failed = 1 if some byte is not `value`; `failed` is memory that the device can write.
void launch_fill_check(const unsigned char* data, unsigned char value, std::size_t bytes,
                       std::uint32_t* failed, cudaStream_t stream);

}  // namespace tessera::cuda

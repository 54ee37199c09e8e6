#pragma once

#include <cstdint>
#include <string>

namespace emulated_cuda::races {

/// Numbers places in the module's code with Record::kCodeBits: exactly in a module up to 16 MiB, to
/// a few bytes in a larger one. 0 for null.
[[nodiscard]] std::uint32_t code_number(const void* code);

/// "libtessera_cuda_emulated_races.so+0x1234", for addr2line.
[[nodiscard]] std::string place_of_number(std::uint32_t number);

}  // namespace emulated_cuda::races

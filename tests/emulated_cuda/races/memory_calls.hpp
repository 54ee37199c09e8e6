#pragma once

// Included first in sources of kernels: their calls of these functions, and those that the compiler
// makes for them, go to races/calls.cpp. GCC's instrumentation leaves them out.
#include <cstddef>

extern "C" {
void* memcpy(void* to, const void* from, std::size_t bytes) noexcept
    __asm__("emulated_cuda_races_memcpy");
void* memmove(void* to, const void* from, std::size_t bytes) noexcept
    __asm__("emulated_cuda_races_memmove");
void* memset(void* to, int value, std::size_t bytes) noexcept __asm__("emulated_cuda_races_memset");
}

#pragma once

// Precedes the module's header of this name, whose functions are GPU instructions.
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "emulated_cuda/block.hpp"
#include "emulated_cuda/mma.hpp"

namespace tessera::kernels::cuda {

using SharedAddress = std::uintptr_t;

inline SharedAddress shared_address(const void* data) {
  return reinterpret_cast<SharedAddress>(data);
}
inline void* at_address(SharedAddress address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): as a GPU's are
}

template <class T>
void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  constexpr auto type = std::is_same_v<T, __nv_bfloat16> ? emulated_cuda::MmaType::bf16
                                                         : emulated_cuda::MmaType::fp16;
  emulated_cuda::warp_mma(type, c, a, {b0, b1});
}

inline void load_matrices(std::uint32_t (&to)[4], SharedAddress row) {
  emulated_cuda::warp_load(to, at_address(row), false);
}
inline void load_matrices_transposed(std::uint32_t (&to)[4], SharedAddress row) {
  emulated_cuda::warp_load(to, at_address(row), true);
}

inline void copy_async(SharedAddress to, const void* from, int bytes) {
  emulated_cuda::copy_late(at_address(to), from, bytes);
}
inline void close_copies() {
  emulated_cuda::close_late_copies();
}
template <int Groups>
void wait_for_copies() {
  emulated_cuda::finish_late_copies(Groups);
}

inline void store_four_words(uint4* to, uint4 words) {
  *to = words;
}

inline float fast_exp2(float x) {
  return x < -126.0F ? 0.0F : __exp2f(x);
}

}  // namespace tessera::kernels::cuda

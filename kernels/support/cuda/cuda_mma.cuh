#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

// Instructions that CUDA C++ has no functions for: products on tensor cores and the loads that feed
// them, for compute capability 8.0, and a store of 16 bytes. The emulation of CUDA has a header of
// this name in its own folder.
namespace tessera::kernels::cuda {

/// An address in shared memory.
using SharedAddress = std::uint32_t;

__device__ inline SharedAddress shared_address(const void* data) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(data));
}

/// c += a b, for 16 x 16 and 16 x 8 elements T (bf16 or fp16) distributed over a warp's lanes. In
/// lane l, with row = l / 4 and pair = 2 (l % 4), each word holds two neighbours, the first in its
/// low half: a[0] to a[3] hold columns pair and pair + 1 of rows row and row + 8, then columns pair
/// + 8 and pair + 9 of both; b0 and b1 hold rows pair and pair + 1, then pair + 8 and pair + 9, of
/// column `row`; c holds columns pair and pair + 1 of row `row`, then of row + 8.
template <class T>
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Loads four matrices of 8 x 8 elements of 16 bits: row i of matrix m is the 16 bytes at the
/// address of lane 8 m + i. In to[m] lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
__device__ inline void load_matrices(std::uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}
/// The same for the transposed matrices.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

/// Copies the first `bytes` of 16 bytes to shared memory and writes zeros to the rest. The copy is
/// complete once the calling thread has waited for it.
__device__ inline void copy_async(SharedAddress to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
/// Closes a group: the copies that the calling thread has issued since the last group.
__device__ inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all groups of the calling thread except the last `Groups`.
template <int Groups>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

/// One store of 16 bytes that the compiler cannot split: nvcc 13.0 cut the stores of a cast to fp32
/// into four each, which ran at half the rate of a copy.
__device__ inline void store_four_words(uint4* to, uint4 words) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
               : "memory");
}

/// 2^x, within a few units of the last place; 0 below 2^-126.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tessera::kernels::cuda

#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/support/cuda/cuda_element.cuh"

// A thread's elements of a row, some neighbours at a time, as floats.
namespace tessera::kernels::cuda {

/// Elements of one 16-byte access.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));
/// Pack size of the narrower of two types.
template <class A, class B>
inline constexpr int kPackOf = std::max(kPack<A>, kPack<B>);

/// How the rows of matrices are accessed. Both ways assign the same elements to each thread: no sum
/// depends on an address.
enum class Access : std::uint8_t {
  packs,   ///< 16 bytes at a time: every row starts at a multiple of 16 bytes and consists of whole
           ///< packs
  singles  ///< element by element
};

/// The access to matrices with rows of `columns` elements by threads that read `pack` elements at a
/// time. Null arrays are ignored.
[[nodiscard]] inline Access access_of(int pack, std::int64_t columns,
                                      std::initializer_list<ConstValues> arrays) noexcept {
  const auto fits = [](const ConstValues& array) {
    return reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0;
  };
  const bool all = std::all_of(arrays.begin(), arrays.end(), fits);
  return all && columns % pack == 0 ? Access::packs : Access::singles;
}

/// to[j] = from[j] for j < `count`, else 0, for j < N; `count` > 0. With packs, `count` is at least
/// N.
template <int N, class T>
__device__ inline void load_floats(const T* from, Access access, std::int64_t count,
                                   float (&to)[N]) {
  if (access == Access::packs) {
    constexpr int width = N < kPack<T> ? N : kPack<T>;
#pragma unroll
    for (int first = 0; first < N; first += width) {
      float some[width];
      to_floats(load_pack<width>(from + first), some);
#pragma unroll
      for (int j = 0; j < width; ++j) { to[first + j] = some[j]; }
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) { to[j] = j < count ? to_float(from[j]) : 0.0F; }
  }
}

/// to[j] = from[j], rounded to nearest, for j < N and j < `count`.
template <int N, class T>
__device__ inline void store_floats(T* to, Access access, std::int64_t count,
                                    const float (&from)[N]) {
  if (access == Access::packs) {
    constexpr int width = N < kPack<T> ? N : kPack<T>;
#pragma unroll
    for (int first = 0; first < N; first += width) {
      Pack<T, width> pack;
#pragma unroll
      for (int j = 0; j < width; ++j) { pack.at[j] = from_float<T>(from[first + j]); }
      store_pack(to + first, pack);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (j < count) { to[j] = from_float<T>(from[j]); }
    }
  }
}

}  // namespace tessera::kernels::cuda

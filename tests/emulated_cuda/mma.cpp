#include "emulated_cuda/mma.hpp"

#include <cstring>

#include "emulated_cuda/block.hpp"
#include "emulated_cuda/misuse.hpp"
#include "tessera/base/half.hpp"

namespace emulated_cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

/// What a lane brings to a product, and what is left with it.
struct Product {
  float* c;
  const std::uint32_t* a;
  std::array<std::uint32_t, 2> b;
};

template <class T>
float widened(std::uint32_t word, unsigned half) {
  return T{static_cast<std::uint16_t>(word >> (16U * half))}.to_float();
}

/// Called once for a warp: `lanes` are addresses of its Products.
template <class T>
void multiply(const std::uint64_t* lanes) {
  float a[16][16];
  float b[8][16];  // transposed
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto& of = *reinterpret_cast<const Product*>(lanes[lane]);
    const unsigned row = lane / 4;
    const unsigned pair = 2 * (lane % 4);
    for (unsigned e = 0; e < 2; ++e) {
      for (unsigned i = 0; i < 4; ++i) {
        a[row + 8 * (i % 2)][pair + 8 * (i / 2) + e] = widened<T>(of.a[i], e);
      }
      for (unsigned i = 0; i < 2; ++i) { b[row][pair + 8 * i + e] = widened<T>(of.b[i], e); }
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto& of = *reinterpret_cast<const Product*>(lanes[lane]);
    for (unsigned i = 0; i < 4; ++i) {
      const float* const left = a[lane / 4 + 8 * (i / 2)];
      const float* const right = b[2 * (lane % 4) + i % 2];
      double sum = of.c[i];
      for (unsigned k = 0; k < 16; ++k) { sum += static_cast<double>(left[k]) * right[k]; }
      of.c[i] = static_cast<float>(sum);
    }
  }
}

struct Matrices {
  std::uint32_t* to;
  const void* row;
};

template <bool transposed>
void load(const std::uint64_t* lanes) {
  std::uint16_t rows[32][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    std::memcpy(rows[lane], reinterpret_cast<const Matrices*>(lanes[lane])->row, sizeof rows[lane]);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned row = lane / 4;
    const unsigned pair = 2 * (lane % 4);
    for (unsigned m = 0; m < 4; ++m) {
      const std::uint16_t(*const matrix)[8] = rows + 8 * m;
      const std::uint32_t low = transposed ? matrix[pair][row] : matrix[row][pair];
      const std::uint32_t high = transposed ? matrix[pair + 1][row] : matrix[row][pair + 1];
      reinterpret_cast<const Matrices*>(lanes[lane])->to[m] = low | high << 16U;
    }
  }
}

void together(void (*work)(const std::uint64_t*), const void* own) {
  WarpCall call;
  call.kind = WarpCall::together;
  call.mask = kAllLanes;
  call.value = reinterpret_cast<std::uintptr_t>(own);
  call.work = work;
  (void)warp_call(call);
}

}  // namespace

void warp_mma(MmaType type, float (&c)[4], const std::uint32_t (&a)[4],
              std::array<std::uint32_t, 2> b) {
  const Product own{c, a, b};
  together(type == MmaType::bf16 ? multiply<tessera::bfloat16> : multiply<tessera::float16>, &own);
}

void warp_load(std::uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    misuse("a matrix is loaded whose rows do not start at multiples of 16 bytes");
  }
  const Matrices own{to, row};
  together(transposed ? load<true> : load<false>, &own);
}

}  // namespace emulated_cuda

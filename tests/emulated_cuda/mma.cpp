#include "emulated_cuda/mma.hpp"

#include <bit>
#include <cstring>

#include "emulated_cuda/block.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/observer.hpp"
#include "tessera/base/half.hpp"

namespace emulated_cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

/// A lane's input to a product and its part of the result.
struct Product {
  float* c;
  const std::uint32_t* a;
  std::array<std::uint32_t, 2> b;
};

double widened(MmaType type, std::uint32_t word, unsigned half) {
  const auto bits = static_cast<std::uint16_t>(word >> (16U * half));
  if (type == MmaType::bf16) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }
  return tessera::float16{bits}.to_float();
}

/// Called once per warp; `lanes` are the addresses of the lanes' Products.
template <MmaType type>
void multiply(const std::uint64_t* lanes) {
  double a[16][16];
  double b[16][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto& of = *reinterpret_cast<const Product*>(lanes[lane]);
    const unsigned row = lane / 4;
    const unsigned pair = 2 * (lane % 4);
    for (unsigned e = 0; e < 2; ++e) {
      for (unsigned i = 0; i < 4; ++i) {
        a[row + 8 * (i % 2)][pair + 8 * (i / 2) + e] = widened(type, of.a[i], e);
      }
      for (unsigned i = 0; i < 2; ++i) { b[pair + 8 * i + e][row] = widened(type, of.b[i], e); }
    }
  }
  double c[16][8] = {};
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned column = 0; column < 8; ++column) {
        c[row][column] += a[row][k] * b[k][column];
      }
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    float* const to = reinterpret_cast<const Product*>(lanes[lane])->c;
    for (unsigned i = 0; i < 4; ++i) {
      to[i] = static_cast<float>(to[i] + c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]);
    }
  }
}

struct Matrices {
  std::uint32_t* to;
  const void* row;
};

/// Each element is read by the lane that gets it, whichever lane names its row.
template <bool transposed>
void report_loads(const std::uint64_t* lanes, GridObserver& to) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned row = lane / 4;
    const unsigned pair = 2 * (lane % 4);
    const auto row_at = [&](unsigned which) {
      return static_cast<const std::uint16_t*>(
          reinterpret_cast<const Matrices*>(lanes[which])->row);
    };
    for (unsigned first = 0; first < 32; first += 8) {
      if constexpr (transposed) {
        to.read(lane, row_at(first + pair) + row, 2);
        to.read(lane, row_at(first + pair + 1) + row, 2);
      } else {
        to.read(lane, row_at(first + row) + pair, 4);
      }
    }
  }
}

template <bool transposed>
void load(const std::uint64_t* lanes) {
  if (GridObserver* const follows = observer()) { report_loads<transposed>(lanes, *follows); }
  std::uint16_t rows[32][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    std::memcpy(rows[lane], reinterpret_cast<const Matrices*>(lanes[lane])->row, sizeof rows[lane]);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned row = lane / 4;
    const unsigned pair = 2 * (lane % 4);
    for (unsigned m = 0; m < 4; ++m) {
      const std::uint16_t(*const matrix)[8] = rows + std::size_t{8} * m;
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
  together(type == MmaType::bf16 ? multiply<MmaType::bf16> : multiply<MmaType::fp16>, &own);
}

void warp_load(std::uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    misuse("a matrix is loaded whose rows do not start at multiples of 16 bytes");
  }
  const Matrices own{to, row};
  together(transposed ? load<true> : load<false>, &own);
}

}  // namespace emulated_cuda

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/base/update_rule.hpp"

namespace tessera::bench {

/// Arrays of AdamW, `elems` each.
struct AdamWArrays {
  float* weight;
  float* m;
  float* v;
  const float* gradient;
  std::int64_t elems;
};

/// Loops that show what the machine can do, compiled for one instruction set.
struct Loops {
  std::string_view name;
  /// to[i] = a[i] + factor * b[i].
  void (*triad)(float* to, const float* a, const float* b, float factor, std::int64_t elems);
  /// One addition for each of AdamW's seven accesses: only its memory traffic.
  void (*adamw_traffic)(const AdamWArrays& arrays);
  /// AdamW as a plain loop: IEEE operations, vectorised by the compiler.
  void (*plain_adamw)(const AdamWArrays& arrays, const AdamW& hyper, std::int64_t step);
  /// Multiplies and adds in registers only, `peak_flops` per round. The result keeps the compiler
  /// from removing the loop.
  float (*peak)(std::int64_t rounds);
  double peak_flops;
};

inline constexpr int kPeakChains = 12;

/// The loops that this processor can run.
[[nodiscard]] std::vector<Loops> loop_variants();

namespace baseline {
[[nodiscard]] Loops loops();
}
namespace avx512 {
[[nodiscard]] Loops loops();
}

}  // namespace tessera::bench

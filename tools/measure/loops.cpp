#include "tools/measure/loops.hpp"

namespace tessera::bench {

std::vector<Loops> loop_variants() {
  std::vector<Loops> variants{baseline::loops()};
#ifdef TESSERA_HAS_AVX512_LOOPS
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    variants.push_back(avx512::loops());
  }
#endif
  return variants;
}

}  // namespace tessera::bench

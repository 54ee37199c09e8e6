#include "kernels/matmul/matmul_strided.hpp"

#include <algorithm>
#include <utility>

#include "device/cpu/instructions.hpp"

namespace tessera::kernels {

std::vector<MatMulVariant> matmul_variants() {
  std::vector<MatMulVariant> variants{{"baseline", add_matmul_baseline}};
#ifdef TESSERA_HAS_AVX512_MATMUL
  if (uses_avx512()) { variants.push_back({"avx512", add_matmul_avx512}); }
  // Intel's server cores have two multipliers of 512 bits: measured 1.5 times as fast as AVX2.
  // AMD's Zen 4 has multipliers of 256 bits: measured slower.
  if (uses_avx512() && instructions().choices == Choices::intel) {
    std::swap(variants.front(), variants.back());
  }
#endif
  return variants;
}

void add_matmul(const StridedMatMul& product) {
  static const MatMulVariant fastest = matmul_variants().front();
  fastest.run(product);
}

}  // namespace tessera::kernels

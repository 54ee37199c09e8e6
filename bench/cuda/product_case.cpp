#include "bench/cuda/product_case.hpp"

#include "bench/cuda/plain_product.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;

double product_flops(const MatMul& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

}  // namespace

Contest product(Rig& rig, const MatMul& like, DType result) {
  const std::int64_t a_rows = like.transpose_a == kernels::Transpose::yes ? like.k : like.m;
  const Numbers a{rig, DType::bf16, a_rows * like.a_row_elems()};
  const Numbers b{rig, DType::bf16, like.k * like.n};
  const Numbers c{rig, result, like.m * like.c_row_elems()};
  MatMul ours = like;
  ours.a = a.values();
  ours.b = b.values();
  ours.c = c.values();
  const double flops = product_flops(ours);
  Contest contest{Work::flops,
                  rig.repeated("tessera", 0, flops,
                               [=, &rig] {
                                 (void)a, (void)b, (void)c;
                                 rig.table().matmul(ours, rig.stream());
                               }),
                  {}};
  if (const auto plain = plain_product(rig, ours)) {
    contest.limits.push_back(rig.repeated("plain cuBLASLt", 0, flops, plain));
  }
  return contest;
}

}  // namespace tessera::bench

#include "bench/cuda/product_case.hpp"

#include <utility>

#include "bench/cuda/plain_product.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;

Case product_case(Rig& rig, std::string name, const ProductOnDevice& on) {
  return rig.repeated(std::move(name), 0, on.flops(),
                      [on, &rig] { rig.table().matmul(on.product(), rig.stream()); });
}

}  // namespace

ProductOnDevice::ProductOnDevice(Rig& rig, const TrainingProduct& product)
    : product_{product.like} {
  const std::int64_t elems = product.like.m * product.like.n;
  product_.a = take(rig, DType::bf16, product.a_elems());
  product_.b = take(rig, DType::bf16, product.b_elems());
  product_.c = take(rig, product.result, product.c_elems());
  if (product.bias) { product_.bias = take(rig, DType::bf16, product.like.n); }
  if (product.residual) { product_.residual = take(rig, product.result, elems); }
  if (product.bias_gradient) { product_.bias_gradient = take(rig, DType::fp32, product.like.n); }
  if (product.like.epilogue != kernels::Epilogue::none) {
    product_.pre_gelu = take(rig, product.result, elems);
  }
}

double ProductOnDevice::flops() const noexcept {
  return 2.0 * static_cast<double>(product_.m) * static_cast<double>(product_.n) *
         static_cast<double>(product_.k);
}

Values ProductOnDevice::take(Rig& rig, DType dtype, std::int64_t elems) {
  return memory_.emplace_back(rig, dtype, elems).values();
}

KernelContest plain_product_contest(Rig& rig, const TrainingProduct& product) {
  const ProductOnDevice on{rig, product.plain()};
  Contest contest{Work::flops, product_case(rig, "tessera", on), {}};
  if (const auto plain = plain_product(rig, on.product())) {
    contest.limits.push_back(rig.repeated("plain cuBLASLt", 0, on.flops(), plain));
  }
  return {std::move(contest), rig.work_of([&] { rig.table().matmul(on.product(), rig.stream()); })};
}

KernelContest residual_contest(Rig& rig, const TrainingProduct& product) {
  const ProductOnDevice on{rig, product};
  const auto apart = [on, &rig] {
    const MatMul& all = on.product();
    MatMul first = all;
    first.residual = {};
    rig.table().matmul(first, rig.stream());
    rig.table().add(all.residual, all.c, all.c, all.m * all.n, rig.stream());
  };
  return {{Work::runs,
           product_case(rig, "in one call", on),
           {rig.repeated("in two kernels", 0, on.flops(), apart)}},
          {}};
}

}  // namespace tessera::bench

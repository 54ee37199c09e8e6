#include "tools/measure/products.hpp"

#include <fmt/format.h>

#include "kernels/matmul/matmul_algorithms.hpp"
#include "tools/measure/arrays.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;
using kernels::MatMulAlgorithm;
using kernels::Transpose;
using kernels::Write;

/// A weight [in, out] of a layer.
struct Weight {
  std::string name;
  std::int64_t in;
  std::int64_t out;
};

Contest contest_of(const MatMul& like, DType a_dtype, DType c_dtype) {
  const RoundedNoise a{a_dtype, like.m * like.k, 1}, b{a_dtype, like.k * like.n, 2};
  const RoundedNoise c{c_dtype, like.m * like.n, 3};
  MatMul product = like;
  product.a = a.values();
  product.b = b.values();
  product.c = c.values();
  const auto on = std::make_shared<CallerStream>();
  const double flops = 2.0 * static_cast<double>(like.m * like.n) * static_cast<double>(like.k);
  const auto case_of = [&](MatMulAlgorithm algorithm) {
    return Case{std::string{to_string(algorithm)}, 0.0, flops, [=] {
                  (void)a, (void)b, (void)c;
                  kernels::matmul_with(algorithm, product, on->get());
                }};
  };
  const std::vector<MatMulAlgorithm> algorithms = kernels::algorithms_of(product);
  Contest contest{Work::flops, case_of(algorithms.front()), {}};
  for (std::size_t i = 1; i < algorithms.size(); ++i) {
    contest.limits.push_back(case_of(algorithms[i]));
  }
  return contest;
}

}  // namespace

std::vector<ProductTimes> measure_products(const nn::DecoderConfig& model, std::int64_t rows,
                                           int rounds) {
  const std::int64_t h = model.hidden;
  const Weight weights[] = {{"c_attn", h, 3 * h},
                            {"c_proj", h, h},
                            {"c_fc", h, 4 * h},
                            {"mlp.c_proj", 4 * h, h},
                            {"wte", h, model.vocab}};
  std::vector<ProductTimes> all;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const Weight& w : weights) {
      const auto add = [&](const char* pass, const MatMul& p, DType c) {
        all.push_back({w.name + " " + pass,
                       fmt::format("{} {} {}", to_string(dtype), to_string(dtype), to_string(c)),
                       p.m, p.n, p.k, measure(contest_of(p, dtype, c), rounds)});
      };
      // wte is stored as rows of `hidden`, the others as rows of `out`.
      const bool rows_of_hidden = w.name == "wte";
      const Transpose forward = rows_of_hidden ? Transpose::yes : Transpose::no;
      const Transpose back = rows_of_hidden ? Transpose::no : Transpose::yes;
      add("forward",
          {.a = {}, .b = {}, .c = {}, .m = rows, .n = w.out, .k = w.in, .transpose_b = forward},
          dtype);
      add("dx", {.a = {}, .b = {}, .c = {}, .m = rows, .n = w.in, .k = w.out, .transpose_b = back},
          dtype);
      add("dW",
          {.a = {},
           .b = {},
           .c = {},
           .m = rows_of_hidden ? w.out : w.in,
           .n = rows_of_hidden ? w.in : w.out,
           .k = rows,
           .transpose_a = Transpose::yes,
           .write = Write::add},
          DType::fp32);
    }
  }
  return all;
}

}  // namespace tessera::bench

#include <fmt/format.h>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/product_case.hpp"
#include "kernels/support/row_multiple.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/nn/gpt_config.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;
using kernels::Transpose;

/// A weight [in, out] of a layer.
struct Weight {
  const char* name;
  std::int64_t in;
  std::int64_t out;
};

}  // namespace

std::vector<CudaContest> product_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  const std::int64_t h = sizes.hidden(), rows = sizes.tokens();
  for (const Weight& w : {Weight{"c_attn", h, 3 * h},
                          {"c_proj", h, h},
                          {"c_fc", h, 4 * h},
                          {"mlp.c_proj", 4 * h, h},
                          {"wte", h, sizes.vocab}}) {
    // wte is stored as rows of `hidden`, the others as rows of `out`; its products are of the rows
    // that it has room for.
    const bool tied = std::string{w.name} == "wte";
    const std::int64_t logits = tied ? nn::GPTConfig{.vocab = w.out}.logits_row_elems() : 0;
    const std::int64_t out = tied ? nn::head_rows(w.out, logits, kernels::kCudaRowMultiple) : w.out;
    const auto add = [&](const char* pass, const MatMul& p, DType result) {
      all.push_back({"products", fmt::format("{} {}, {} x {} x {}", w.name, pass, p.m, p.n, p.k),
                     [=](Rig& rig) { return product(rig, p, result); }});
    };
    add("forward",
        {.a = {},
         .b = {},
         .c = {},
         .m = rows,
         .n = out,
         .k = w.in,
         .transpose_b = tied ? Transpose::yes : Transpose::no,
         .c_stride = logits},
        DType::bf16);
    add("dx",
        {.a = {},
         .b = {},
         .c = {},
         .m = rows,
         .n = w.in,
         .k = out,
         .transpose_b = tied ? Transpose::no : Transpose::yes,
         .a_stride = logits},
        DType::bf16);
    add("dW",
        {.a = {},
         .b = {},
         .c = {},
         .m = tied ? out : w.in,
         .n = tied ? w.in : out,
         .k = rows,
         .transpose_a = Transpose::yes,
         .write = kernels::Write::add,
         .a_stride = logits},
        DType::fp32);
  }
  return all;
}

}  // namespace tessera::bench

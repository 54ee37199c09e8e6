#include "tessera/nn/embedding.hpp"

#include <algorithm>

#include "nn/layer.hpp"
#include "tessera/base/math.hpp"
#include "tessera/kernels/embedding.hpp"
#include "tessera/kernels/matmul.hpp"

namespace tessera::nn {

using kernels::Transpose;

namespace {
constexpr std::string_view kTokens = "wte.weight";
constexpr std::string_view kPositions = "wpe.weight";
}  // namespace

std::int64_t head_rows(std::int64_t vocab, std::int64_t logits_row_elems, std::int64_t multiple) {
  return std::max(vocab, std::min(round_up(vocab, multiple), logits_row_elems));
}

Embedding::Embedding(World& world, Sizes sizes)
    : sizes_{sizes},
      table_rows_{head_rows(sizes.vocab, sizes.logits_row_elems,
                            kernels::fast_row_multiple(world.compute_stream()))} {}

std::vector<ParameterSpec> Embedding::parameters() const {
  return {{.name = std::string{kTokens},
           .shape = {sizes_.vocab, sizes_.hidden},
           .room = table_rows_ > sizes_.vocab ? table_rows_ * sizes_.hidden : 0},
          {.name = std::string{kPositions}, .shape = {sizes_.positions, sizes_.hidden}}};
}

void Embedding::forward(const Scope& wte, const Scope& wpe, const std::int32_t* tokens, Values y,
                        BatchShape shape) const {
  kernels::embedding_forward({.tokens = tokens,
                              .token_table = wte[kTokens],
                              .position_table = wpe[kPositions],
                              .y = y,
                              .batch = shape.batch,
                              .seq = shape.seq,
                              .hidden = sizes_.hidden},
                             wte.stream());
}

void Embedding::backward(const BackwardScope& wte, const BackwardScope& wpe,
                         const std::int32_t* tokens, ConstValues dy, BatchShape shape) const {
  kernels::embedding_backward({.tokens = tokens,
                               .dy = dy,
                               .dtoken_table = gradient_or_null(wte, kTokens),
                               .dposition_table = gradient_or_null(wpe, kPositions),
                               .batch = shape.batch,
                               .seq = shape.seq,
                               .hidden = sizes_.hidden},
                              wte.stream());
}

void Embedding::head(const Scope& scope, ConstValues x, Values logits, std::int64_t rows) const {
  kernels::matmul({.a = x,
                   .b = scope[kTokens],
                   .c = logits,
                   .m = rows,
                   .n = table_rows_,
                   .k = sizes_.hidden,
                   .transpose_b = Transpose::yes,
                   .c_stride = sizes_.logits_row_elems},
                  scope.stream());
}

void Embedding::head_backward(const BackwardScope& scope, ConstValues x, ConstValues dlogits,
                              Values dx, std::int64_t rows) const {
  if (const Gradient dtable{scope, kTokens}; dtable.to) {
    kernels::matmul({.a = dlogits,
                     .b = x,
                     .c = dtable.to,
                     .m = table_rows_,
                     .n = sizes_.hidden,
                     .k = rows,
                     .transpose_a = Transpose::yes,
                     .write = dtable.write,
                     .a_stride = sizes_.logits_row_elems},
                    scope.stream());
  }
  kernels::matmul({.a = dlogits,
                   .b = scope[kTokens],
                   .c = dx,
                   .m = rows,
                   .n = sizes_.hidden,
                   .k = table_rows_,
                   .a_stride = sizes_.logits_row_elems},
                  scope.stream());
}

}  // namespace tessera::nn

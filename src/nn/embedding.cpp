#include "tessera/nn/embedding.hpp"

#include "kernels/table.hpp"
#include "nn/layer.hpp"

namespace tessera::nn {

using kernels::Transpose;
using kernels::Write;

namespace {
constexpr std::string_view kTokens = "wte.weight";
constexpr std::string_view kPositions = "wpe.weight";
}  // namespace

std::vector<ParameterSpec> Embedding::parameters() const {
  return {{.name = std::string{kTokens}, .shape = {sizes_.vocab, sizes_.hidden}},
          {.name = std::string{kPositions}, .shape = {sizes_.positions, sizes_.hidden}}};
}

void Embedding::forward(const Scope& scope, const std::int32_t* tokens, Values y,
                        BatchShape shape) const {
  world_->kernels().embedding_forward({.tokens = tokens,
                                       .token_table = scope[kTokens],
                                       .position_table = scope[kPositions],
                                       .y = y,
                                       .batch = shape.batch,
                                       .seq = shape.seq,
                                       .hidden = sizes_.hidden},
                                      scope.stream());
}

void Embedding::backward(const BackwardScope& scope, const std::int32_t* tokens, ConstValues dy,
                         BatchShape shape) const {
  world_->kernels().embedding_backward({.tokens = tokens,
                                        .dy = dy,
                                        .dtoken_table = gradient_or_null(scope, kTokens),
                                        .dposition_table = gradient_or_null(scope, kPositions),
                                        .batch = shape.batch,
                                        .seq = shape.seq,
                                        .hidden = sizes_.hidden},
                                       scope.stream());
}

void Embedding::head(const Scope& scope, ConstValues x, Values logits, std::int64_t rows) const {
  world_->kernels().matmul({.a = x,
                            .b = scope[kTokens],
                            .c = logits,
                            .m = rows,
                            .n = sizes_.vocab,
                            .k = sizes_.hidden,
                            .transpose_b = Transpose::yes,
                            .c_stride = sizes_.logits_row_elems},
                           scope.stream());
}

void Embedding::head_backward(const BackwardScope& scope, ConstValues x, ConstValues dlogits,
                              Values dx, std::int64_t rows) const {
  const kernels::Table& k = world_->kernels();
  if (const Values dtable = gradient_or_null(scope, kTokens)) {
    k.matmul({.a = dlogits,
              .b = x,
              .c = dtable,
              .m = sizes_.vocab,
              .n = sizes_.hidden,
              .k = rows,
              .transpose_a = Transpose::yes,
              .write = Write::add,
              .a_stride = sizes_.logits_row_elems},
             scope.stream());
  }
  k.matmul({.a = dlogits,
            .b = scope[kTokens],
            .c = dx,
            .m = rows,
            .n = sizes_.hidden,
            .k = sizes_.vocab,
            .a_stride = sizes_.logits_row_elems},
           scope.stream());
}

}  // namespace tessera::nn

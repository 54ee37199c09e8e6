#include "tessera/nn/embedding.hpp"

#include <algorithm>
#include <utility>

#include "nn/layer.hpp"
#include "nn/vocab_cut.hpp"
#include "tessera/base/math.hpp"
#include "tessera/kernels/embedding.hpp"
#include "tessera/kernels/matmul.hpp"

namespace tessera::nn {

using kernels::Transpose;

namespace {
constexpr std::string_view kTokens = "wte.weight";
constexpr std::string_view kPositions = "wpe.weight";
constexpr std::string_view kHead = "lm_head.weight";
}  // namespace

std::int64_t head_rows(std::int64_t vocab, std::int64_t logits_row_elems, std::int64_t multiple) {
  return std::max(vocab, std::min(round_up(vocab, multiple), logits_row_elems));
}

TensorCut vocab_cut(World& world) {
  return {.dim = 0, .granule = kernels::fast_row_multiple(world.compute_stream())};
}

std::vector<Range> vocab_parts(World& world, std::int64_t vocab, int ranks) {
  std::vector<Range> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const TensorPart part{Shape{vocab}, vocab_cut(world), {rank, ranks}};
    parts.push_back({part.first_index(), part.elems()});
  }
  return parts;
}

Embedding::Embedding(World& world, Sizes sizes, TensorRanks ranks)
    : sizes_{sizes}, ranks_{std::move(ranks)}, head_table_{sizes.tied_head ? kTokens : kHead} {
  const TensorCut cut = vocab_cut(world);
  const std::int64_t rows = head_rows(sizes.vocab, sizes.logits_row_elems, cut.granule);
  const auto table = [&](std::string_view name) -> ParameterSpec {
    ParameterSpec spec{.name = std::string{name}, .shape = {sizes.vocab, sizes.hidden}};
    if (name == head_table_ && rows > sizes.vocab) { spec.room = rows * sizes.hidden; }
    cut_along(spec, cut, ranks_);
    return spec;
  };
  parameters_ = {table(kTokens)};
  if (sizes.positions > 0) {
    parameters_.push_back(
        {.name = std::string{kPositions}, .shape = {sizes.positions, sizes.hidden}});
  }
  if (!sizes.tied_head) { head_parameters_ = {table(kHead)}; }
  tokens_ = part_of(sizes.vocab, cut, ranks_);
  const bool last = ranks_.index() + 1 == ranks_.size();
  table_rows_ = last ? rows - tokens_.first : tokens_.elems;
  logits_row_elems_ = sizes.logits_row_elems;
  if (ranks_.size() > 1) {
    logits_row_elems_ =
        sizes.logits_row_elems == 0 ? tokens_.elems : round_up(tokens_.elems, std::int64_t{64});
  }
}

std::vector<ParameterSpec> Embedding::parameters() const {
  return parameters_;
}

std::vector<ParameterSpec> Embedding::head_parameters() const {
  return head_parameters_;
}

// One rank adds the positions, before the sum: no extra rounding compared to one rank.
void Embedding::forward(const Scope& wte, const Scope& wpe, const std::int32_t* tokens, Values y,
                        BatchShape shape, Values whole, const std::int32_t* first_key) const {
  const Values sum = ranks_.options().sequence_parallel ? whole : y;
  const bool adds = sizes_.positions > 0 && ranks_.index() == 0;
  kernels::embedding_forward({.tokens = tokens,
                              .token_table = wte[kTokens],
                              .position_table = adds ? ConstValues{wpe[kPositions]} : ConstValues{},
                              .y = sum,
                              .batch = shape.batch,
                              .seq = shape.seq,
                              .hidden = sizes_.hidden,
                              .first_token = tokens_.first,
                              .table_tokens = tokens_.elems,
                              .first_key = first_key},
                             wte.stream());
  ranks_.sum(sum, shape.rows(), sizes_.hidden);
  ranks_.copy_own(sum, y, shape.rows(), sizes_.hidden);
}

void Embedding::backward(const BackwardScope& wte, const BackwardScope& wpe,
                         const std::int32_t* tokens, ConstValues dy, BatchShape shape, Values whole,
                         const std::int32_t* first_key) const {
  ranks_.gather(dy, whole, shape.rows(), sizes_.hidden);
  kernels::embedding_backward(
      {.tokens = tokens,
       .dy = ranks_.options().sequence_parallel ? ConstValues{whole} : dy,
       .dtoken_table = gradient_or_null(wte, kTokens),
       .dposition_table = sizes_.positions > 0 ? gradient_or_null(wpe, kPositions) : Values{},
       .batch = shape.batch,
       .seq = shape.seq,
       .hidden = sizes_.hidden,
       .first_token = tokens_.first,
       .table_tokens = tokens_.elems,
       .first_key = first_key},
      wte.stream());
}

void Embedding::head(const Scope& scope, ConstValues x, Values logits, std::int64_t rows) const {
  kernels::matmul({.a = x,
                   .b = scope[head_table_],
                   .c = logits,
                   .m = rows,
                   .n = table_rows_,
                   .k = sizes_.hidden,
                   .transpose_b = Transpose::yes,
                   .c_stride = logits_row_elems_},
                  scope.stream());
}

void Embedding::head_backward(const BackwardScope& scope, ConstValues x, ConstValues dlogits,
                              Values dx, std::int64_t rows) const {
  if (const Gradient dtable{scope, head_table_}; dtable.to) {
    kernels::matmul({.a = dlogits,
                     .b = x,
                     .c = dtable.to,
                     .m = table_rows_,
                     .n = sizes_.hidden,
                     .k = rows,
                     .transpose_a = Transpose::yes,
                     .write = dtable.write,
                     .a_stride = logits_row_elems_},
                    scope.stream());
  }
  kernels::matmul({.a = dlogits,
                   .b = scope[head_table_],
                   .c = dx,
                   .m = rows,
                   .n = sizes_.hidden,
                   .k = table_rows_,
                   .a_stride = logits_row_elems_},
                  scope.stream());
}

}  // namespace tessera::nn

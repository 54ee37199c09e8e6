#include "tessera/nn/causal_self_attention.hpp"

#include <string>

#include "nn/drop.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/attention.hpp"

namespace tessera::nn {
namespace {

std::int64_t size_of_heads(std::int64_t hidden, std::int64_t heads) {
  expects(heads >= 1 && hidden >= 1 && hidden % heads == 0,
          "CausalSelfAttention: the number of heads must divide the hidden size");
  return hidden / heads;
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(World& world, std::string_view prefix, std::int64_t hidden,
                                         std::int64_t heads, const TensorRanks& ranks)
    : world_{&world},
      c_attn_{std::string{prefix} + ".c_attn",
              hidden,
              3 * hidden,
              ranks,
              {.granule = size_of_heads(hidden, heads), .sections = 3}},
      c_proj_{std::string{prefix} + ".c_proj", hidden, hidden, ranks, hidden / heads},
      head_size_{hidden / heads},
      heads_{part_of(heads, {}, ranks).elems},
      first_head_{part_of(heads, {}, ranks).first} {}

kernels::AttentionShape CausalSelfAttention::kernel_shape(BatchShape shape) const {
  return {.batch = shape.batch, .seq = shape.seq, .heads = heads_, .head_size = head_size_};
}

std::vector<ParameterSpec> CausalSelfAttention::parameters() const {
  return joined({c_attn_.parameters(), c_proj_.parameters()});
}

std::int64_t CausalSelfAttention::workspace_elems(BatchShape shape, DType compute) const {
  return kernels::attention_workspace_elems(kernel_shape(shape), compute, world_->compute_stream());
}

void CausalSelfAttention::forward(const Scope& scope, const Saved& saved, Values y,
                                  BatchShape shape, ConstValues residual) const {
  c_attn_.forward(scope, saved.x, saved.qkv, shape.rows());
  if (heads_ > 0) {
    kernels::attention_forward({.qkv = saved.qkv,
                                .y = saved.mixed,
                                .log_sum_exp = saved.log_sum_exp,
                                .workspace = saved.workspace,
                                .shape = kernel_shape(shape),
                                .dropout = saved.dropout.p,
                                .key = key_of(saved.dropout, DropSite::attention),
                                .first_head = first_head_},
                               scope.stream());
  }
  c_proj_.forward(scope, saved.mixed, y, shape.rows(), residual, saved.whole);
}

void CausalSelfAttention::heads_backward(const Scope& scope, const Saved& saved, ConstValues dmixed,
                                         Values dqkv, BatchShape shape) const {
  if (heads_ == 0) { return; }
  kernels::attention_backward({.qkv = saved.qkv,
                               .y = saved.mixed,
                               .log_sum_exp = saved.log_sum_exp,
                               .dy = dmixed,
                               .dqkv = dqkv,
                               .workspace = saved.lent == nullptr ? saved.workspace : saved.lent,
                               .shape = kernel_shape(shape),
                               .dropout = saved.dropout.p,
                               .key = key_of(saved.dropout, DropSite::attention),
                               .workspace_elems = saved.lent_elems,
                               .first_head = first_head_},
                              scope.stream());
}

void CausalSelfAttention::backward(const BackwardScope& scope, const Saved& saved,
                                   const GradientFlow& flow, BatchShape shape) const {
  const Values dmixed = flow.scratch;
  const Values dqkv = flow.scratch.at(shape.rows() * columns());
  c_proj_.backward(scope, saved.mixed, flow.dy, dmixed, shape.rows());
  heads_backward(scope, saved, dmixed, dqkv, shape);
  c_attn_.backward(scope, saved.x, dqkv, flow.dx, shape.rows());
}

void CausalSelfAttention::input_gradient(const Scope& scope, const Saved& saved, ConstValues dy,
                                         Values dmixed, Values dqkv, Values dx,
                                         BatchShape shape) const {
  c_proj_.input_gradient(scope, dy, dmixed, shape.rows());
  heads_backward(scope, saved, dmixed, dqkv, shape);
  c_attn_.input_gradient(scope, dqkv, dx, shape.rows());
}

void CausalSelfAttention::parameter_gradients(const BackwardScope& scope, const Saved& saved,
                                              ConstValues dy, ConstValues dqkv,
                                              std::int64_t rows) const {
  c_proj_.parameter_gradients(scope, saved.mixed, dy, rows);
  c_attn_.parameter_gradients(scope, saved.x, dqkv, rows);
}

}  // namespace tessera::nn

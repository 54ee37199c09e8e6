#include "tessera/nn/causal_self_attention.hpp"

#include <string>

#include "nn/drop.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/attention.hpp"

namespace tessera::nn {
namespace {

kernels::AttentionShape kernel_shape(BatchShape shape, std::int64_t hidden, std::int64_t heads) {
  return {.batch = shape.batch, .seq = shape.seq, .heads = heads, .head_size = hidden / heads};
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(World& world, std::string_view prefix, std::int64_t hidden,
                                         std::int64_t heads)
    : world_{&world},
      c_attn_{std::string{prefix} + ".c_attn", hidden, 3 * hidden},
      c_proj_{std::string{prefix} + ".c_proj", hidden, hidden},
      hidden_{hidden},
      heads_{heads} {
  expects(heads >= 1 && hidden >= 1 && hidden % heads == 0,
          "CausalSelfAttention: the number of heads must divide the hidden size");
}

std::vector<ParameterSpec> CausalSelfAttention::parameters() const {
  return joined({c_attn_.parameters(), c_proj_.parameters()});
}

std::int64_t CausalSelfAttention::workspace_elems(BatchShape shape, DType compute) const {
  return kernels::attention_workspace_elems(kernel_shape(shape, hidden_, heads_), compute,
                                            world_->compute_stream());
}

void CausalSelfAttention::forward(const Scope& scope, const Saved& saved, Values y,
                                  BatchShape shape, ConstValues residual) const {
  c_attn_.forward(scope, saved.x, saved.qkv, shape.rows());
  kernels::attention_forward({.qkv = saved.qkv,
                              .y = saved.mixed,
                              .log_sum_exp = saved.log_sum_exp,
                              .workspace = saved.workspace,
                              .shape = kernel_shape(shape, hidden_, heads_),
                              .dropout = saved.dropout.p,
                              .key = key_of(saved.dropout, DropSite::attention)},
                             scope.stream());
  c_proj_.forward(scope, saved.mixed, y, shape.rows(), residual);
}

void CausalSelfAttention::backward(const BackwardScope& scope, const Saved& saved,
                                   const GradientFlow& flow, BatchShape shape) const {
  const Values dmixed = flow.scratch;
  const Values dqkv = flow.scratch.at(shape.rows() * hidden_);
  c_proj_.backward(scope, saved.mixed, flow.dy, dmixed, shape.rows());
  kernels::attention_backward({.qkv = saved.qkv,
                               .y = saved.mixed,
                               .log_sum_exp = saved.log_sum_exp,
                               .dy = dmixed,
                               .dqkv = dqkv,
                               .workspace = saved.lent == nullptr ? saved.workspace : saved.lent,
                               .shape = kernel_shape(shape, hidden_, heads_),
                               .dropout = saved.dropout.p,
                               .key = key_of(saved.dropout, DropSite::attention),
                               .workspace_elems = saved.lent_elems},
                              scope.stream());
  c_attn_.backward(scope, saved.x, dqkv, flow.dx, shape.rows());
}

}  // namespace tessera::nn

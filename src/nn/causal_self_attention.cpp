#include "tessera/nn/causal_self_attention.hpp"

#include <string>

#include "nn/drop.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/attention.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/kernels/rms_norm.hpp"
#include "tessera/kernels/rotary.hpp"

namespace tessera::nn {
namespace {

DecoderConfig checked(DecoderConfig config) {
  expects(config.heads >= 1 && config.hidden >= 1 &&
              (config.head_elems > 0 || config.hidden % config.heads == 0),
          "CausalSelfAttention: the number of heads must divide the hidden size");
  expects(config.heads % config.key_heads() == 0,
          "CausalSelfAttention: the heads of keys must divide the query heads");
  return config;
}

std::int64_t group_of(const DecoderConfig& config) {
  return config.heads / config.key_heads();
}

}  // namespace

/// The norm of the queries or of the keys.
struct CausalSelfAttention::HeadNorm {
  const std::string& weight;
  std::int64_t first;  // the first of its values in a row of qkv
  std::int64_t heads;
  std::int64_t first_statistic;  // for each row
};

CausalSelfAttention::CausalSelfAttention(World& world, std::string_view prefix,
                                         const DecoderConfig& config, const TensorRanks& ranks,
                                         std::optional<DType> norms)
    : world_{&world},
      config_{checked(config)},
      c_attn_{std::string{prefix} + ".c_attn",
              config.hidden,
              (config.heads + 2 * config.key_heads()) * config.head_size(),
              ranks,
              {.granule = config.head_size(), .sections = 3, .lead = group_of(config)},
              config.qkv_bias ? Bias::yes : Bias::no},
      c_proj_{std::string{prefix} + ".c_proj",
              config.heads * config.head_size(),
              config.hidden,
              ranks,
              group_of(config) * config.head_size(),
              config.output_bias ? Bias::yes : Bias::no},
      q_norm_{std::string{prefix} + ".q_norm.weight"},
      k_norm_{std::string{prefix} + ".k_norm.weight"},
      norms_{norms},
      key_heads_{part_of(config.key_heads(), {}, ranks).elems},
      heads_{group_of(config) * key_heads_},
      first_head_{group_of(config) * part_of(config.key_heads(), {}, ranks).first},
      several_ranks_{ranks.size() > 1} {}

kernels::AttentionShape CausalSelfAttention::kernel_shape(BatchShape shape,
                                                          std::int64_t window) const {
  return {.batch = shape.batch,
          .seq = shape.seq,
          .heads = heads_,
          .head_size = config_.head_size(),
          .kv_heads = key_heads_ == heads_ ? 0 : key_heads_,
          .window = window,
          .scale = config_.attention_scale};
}

std::vector<ParameterSpec> CausalSelfAttention::parameters() const {
  std::vector<ParameterSpec> all = joined({c_attn_.parameters(), c_proj_.parameters()});
  if (!config_.head_norms) { return all; }
  for (const std::string& name : {q_norm_, k_norm_}) {
    all.push_back(
        {.name = name,
         .shape = {config_.head_size()},
         .dtype = norms_,
         .tensor_gradient = several_ranks_ ? TensorGradient::part : TensorGradient::equal});
  }
  return all;
}

std::int64_t CausalSelfAttention::workspace_elems(BatchShape shape, DType compute) const {
  return kernels::attention_workspace_elems(kernel_shape(shape), compute, world_->compute_stream());
}

std::vector<CausalSelfAttention::HeadNorm> CausalSelfAttention::head_norms() const {
  return {{q_norm_, 0, heads_, 0}, {k_norm_, heads_ * config_.head_size(), key_heads_, heads_}};
}

// Queries and keys lie side by side in each row, before the values.
kernels::Rotary CausalSelfAttention::rotation(const Saved& saved, Values qkv,
                                              BatchShape shape) const {
  return {.x = qkv,
          .cosines = saved.rotary.cosines,
          .sines = saved.rotary.sines,
          .batch = shape.batch,
          .seq = shape.seq,
          .heads = heads_ + key_heads_,
          .head_size = config_.head_size(),
          .row_elems = packed(),
          .rotated = config_.rotated_elems(),
          .pairs = config_.rotary_pairs,
          .first_key = saved.first_key};
}

// Head norms need their inputs in backward: their outputs are computed again there, in memory that
// all layers share.
ConstValues CausalSelfAttention::prepare(const Scope& scope, const Saved& saved, Values normed,
                                         BatchShape shape, bool again) const {
  const std::int64_t rows = shape.rows();
  const Stream stream = scope.stream();
  const bool norms = config_.head_norms;
  const Values qkv = norms ? normed : saved.qkv;
  if (norms) {
    kernels::cast({qkv.data, rows * packed(), qkv.dtype},
                  {saved.qkv.data, rows * packed(), saved.qkv.dtype}, stream);
    for (const HeadNorm& norm : head_norms()) {
      kernels::rms_norm_forward({.x = saved.qkv.at(norm.first),
                                 .weight = scope[norm.weight],
                                 .y = qkv.at(norm.first),
                                 .inverse_rms = saved.inverse_rms + rows * norm.first_statistic,
                                 .rows = rows * norm.heads,
                                 .columns = config_.head_size(),
                                 .eps = config_.norm_eps,
                                 .group = norm.heads,
                                 .x_group_elems = packed(),
                                 .y_group_elems = packed()},
                                stream);
    }
  }
  const bool rotates = config_.positions == PositionKind::rotary && (norms || !again);
  if (rotates) { kernels::rotary_forward(rotation(saved, qkv, shape), stream); }
  return qkv;
}

void CausalSelfAttention::forward(const Scope& scope, const Saved& saved, Values y,
                                  BatchShape shape, ConstValues residual) const {
  c_attn_.forward(scope, saved.x, saved.qkv, shape.rows());
  if (heads_ > 0) {
    const ConstValues qkv = prepare(scope, saved, saved.normed, shape, /*again=*/false);
    kernels::attention_forward({.qkv = qkv,
                                .y = saved.mixed,
                                .log_sum_exp = saved.log_sum_exp,
                                .workspace = saved.workspace,
                                .shape = kernel_shape(shape, saved.window),
                                .dropout = saved.dropout.p,
                                .key = key_of(saved.dropout, DropSite::attention),
                                .first_head = first_head_,
                                .first_key = saved.first_key},
                               scope.stream());
  }
  c_proj_.forward(scope, saved.mixed, y, shape.rows(), residual, saved.whole);
}

void CausalSelfAttention::heads_backward(const Scope& scope, const Saved& saved, ConstValues dmixed,
                                         Values dqkv, Values normed, BatchShape shape) const {
  if (heads_ == 0) { return; }
  const ConstValues qkv = prepare(scope, saved, normed, shape, /*again=*/true);
  kernels::attention_backward({.qkv = qkv,
                               .y = saved.mixed,
                               .log_sum_exp = saved.log_sum_exp,
                               .dy = dmixed,
                               .dqkv = dqkv,
                               .workspace = saved.lent == nullptr ? saved.workspace : saved.lent,
                               .shape = kernel_shape(shape, saved.window),
                               .dropout = saved.dropout.p,
                               .key = key_of(saved.dropout, DropSite::attention),
                               .workspace_elems = saved.lent_elems,
                               .first_head = first_head_,
                               .first_key = saved.first_key},
                              scope.stream());
  if (config_.positions == PositionKind::rotary) {
    kernels::rotary_backward(rotation(saved, dqkv, shape), scope.stream());
  }
}

void CausalSelfAttention::norms_backward(const Scope& scope, const Saved& saved, Values dqkv,
                                         std::int64_t rows, const BackwardScope* gradients) const {
  if (!config_.head_norms || heads_ == 0) { return; }
  for (const HeadNorm& norm : head_norms()) {
    kernels::rms_norm_backward(
        {.x = saved.qkv.at(norm.first),
         .weight = scope[norm.weight],
         .inverse_rms = saved.inverse_rms + rows * norm.first_statistic,
         .dy = dqkv.at(norm.first),
         .dx = dqkv.at(norm.first),
         .dweight = gradients == nullptr ? Values{} : gradient_or_null(*gradients, norm.weight),
         .rows = rows * norm.heads,
         .columns = config_.head_size(),
         .group = norm.heads,
         .x_group_elems = packed(),
         .dy_group_elems = packed(),
         .dx_group_elems = packed(),
         .dx_write = kernels::Write::overwrite},
        scope.stream());
  }
}

void CausalSelfAttention::backward(const BackwardScope& scope, const Saved& saved,
                                   const GradientFlow& flow, BatchShape shape) const {
  const std::int64_t rows = shape.rows();
  const Values dmixed = flow.scratch;
  const Values dqkv = flow.scratch.at(rows * columns());
  const Values normed = config_.head_norms ? dqkv.at(rows * packed()) : Values{};
  c_proj_.backward(scope, saved.mixed, flow.dy, dmixed, rows);
  heads_backward(scope, saved, dmixed, dqkv, normed, shape);
  norms_backward(scope, saved, dqkv, rows, &scope);
  c_attn_.backward(scope, saved.x, dqkv, flow.dx, rows);
}

// The gradients of the norms' weights need dqkv as it was before the norms' backward.
void CausalSelfAttention::input_gradient(const Scope& scope, const Saved& saved, ConstValues dy,
                                         Values scratch, Values dqkv, Values dx,
                                         BatchShape shape) const {
  const std::int64_t rows = shape.rows();
  const Values before_norms = scratch.at(rows * columns());
  c_proj_.input_gradient(scope, dy, scratch, rows);
  heads_backward(scope, saved, scratch, dqkv, before_norms, shape);
  if (!config_.head_norms) { return c_attn_.input_gradient(scope, dqkv, dx, rows); }
  kernels::cast({before_norms.data, rows * packed(), before_norms.dtype},
                {dqkv.data, rows * packed(), dqkv.dtype}, scope.stream());
  norms_backward(scope, saved, before_norms, rows, nullptr);
  c_attn_.input_gradient(scope, before_norms, dx, rows);
}

void CausalSelfAttention::parameter_gradients(const BackwardScope& scope, const Saved& saved,
                                              ConstValues dy, Values dqkv,
                                              std::int64_t rows) const {
  c_proj_.parameter_gradients(scope, saved.mixed, dy, rows);
  norms_backward(scope, saved, dqkv, rows, &scope);
  c_attn_.parameter_gradients(scope, saved.x, dqkv, rows);
}

}  // namespace tessera::nn

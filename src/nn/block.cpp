#include "tessera/nn/block.hpp"

#include <algorithm>

#include "nn/drop.hpp"
#include "nn/layer.hpp"
#include "tessera/kernels/elementwise.hpp"

namespace tessera::nn {

/// y = residual + drop(y), where something may be dropped.
struct Block::Addition {
  const Dropout& dropout;
  DropSite site;
  ConstValues residual;
  Values y;
  BatchShape shape;

  /// What the product that writes y adds itself. Dropout comes between the two.
  [[nodiscard]] ConstValues in_product() const { return dropout.on() ? ConstValues{} : residual; }
};

Block::Block(World& world, const DecoderConfig& config, std::optional<DType> norms,
             const TensorRanks& ranks)
    : ln_1_{"ln_1", config.hidden, norm_options(config, norms, ranks)},
      attn_{world, "attn", config, ranks, norms},
      ln_2_{"ln_2", config.hidden, norm_options(config, norms, ranks)},
      mlp_{"mlp", config, ranks},
      ranks_{ranks},
      hidden_{config.hidden} {}

std::vector<ParameterSpec> Block::parameters() const {
  return joined({ln_1_.parameters(), attn_.parameters(), ln_2_.parameters(), mlp_.parameters()});
}

std::int64_t Block::inner_elems(std::int64_t rows) const {
  return rows * std::max(attn_.scratch_columns(), mlp_.columns());
}

std::int64_t Block::scratch_elems(std::int64_t rows, const Dropout& dropout) const {
  const bool branches = dropout.on() || ranks_.options().sequence_parallel;
  return (branches ? 2 : 1) * rows * hidden_ + inner_elems(rows);
}

// Normalises the rank's own rows; those of all ranks are gathered.
void Block::norm(const Scope& scope, const Norm& norm, const Norm::Saved& saved, Values y,
                 std::int64_t rows) const {
  const Range own = ranks_.own(rows);
  norm.forward(scope, saved, y.at(own.first * hidden_), own.elems);
  ranks_.gather(y, rows, hidden_);
}

void Block::forward_attention(const Scope& scope, const Saved& saved, BatchShape shape) const {
  norm(scope, ln_1_, saved.ln_1, saved.normed_1, shape.rows());
  const Addition addition{saved.dropout, DropSite::attention_output, saved.ln_1.x, saved.middle,
                          shape};
  attn_.forward(scope, saved.attn, saved.middle, shape, addition.in_product());
  drop_and_add(scope, addition);
  norm(scope, ln_2_, saved.ln_2, saved.normed_2, shape.rows());
}

void Block::forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape) const {
  forward_attention(scope, saved, shape);
  const Addition addition{saved.dropout, DropSite::mlp_output, saved.middle, y, shape};
  mlp_.forward(scope, saved.mlp, y, shape.rows(), addition.in_product());
  drop_and_add(scope, addition);
}

void Block::recompute(const Scope& scope, const Saved& saved, BatchShape shape) const {
  forward_attention(scope, saved, shape);
  mlp_.activate(scope, saved.mlp, shape.rows());
}

// Dropped elements have no gradient, and the stream has none of other ranks' rows; the residual
// branch still has all of the rank's own.
bool Block::branches_off(const Dropout& dropout) const {
  return dropout.on() || ranks_.options().sequence_parallel;
}

void Block::enter_branch(const Scope& scope, const Dropout& dropout, DropSite site, Values stream,
                         Values branch, BatchShape shape) const {
  const std::int64_t rows = shape.rows();
  if (!dropout.on()) { return ranks_.gather(stream, branch, rows, hidden_); }
  const Range own = ranks_.own(rows);
  drop(scope, dropout, site, {stream, branch.at(own.first * hidden_), shape, hidden_, own});
  ranks_.gather(branch, rows, hidden_);
}

// The residual branch passes `stream` on unchanged; each norm adds the other branch's gradient.
void Block::backward(const BackwardScope& scope, const Saved& saved, Values stream, Values scratch,
                     BatchShape shape) const {
  const std::int64_t rows = shape.rows();
  const Range own = ranks_.own(rows);
  const Values dnormed = scratch;
  const Values dnormed_own = dnormed.at(own.first * hidden_);
  const Values inner = scratch.at(rows * hidden_);
  const Values branch = branches_off(saved.dropout) ? inner.at(inner_elems(rows)) : stream;
  const GradientFlow flow{branch, dnormed, inner};
  MLP::Saved mlp = saved.mlp;
  CausalSelfAttention::Saved attn = saved.attn;
  // The last read of a norm's output: its gradient is written there.
  if (saved.norms_again) { mlp.x = attn.x = dnormed; }
  enter_branch(scope, saved.dropout, DropSite::mlp_output, stream, branch, shape);
  if (saved.norms_again) { norm(scope, ln_2_, saved.ln_2, dnormed, rows); }
  mlp_.backward(scope, mlp, flow, rows);
  ln_2_.backward(scope, saved.ln_2, dnormed_own, stream, own.elems);
  enter_branch(scope, saved.dropout, DropSite::attention_output, stream, branch, shape);
  if (saved.norms_again) { norm(scope, ln_1_, saved.ln_1, dnormed, rows); }
  attn_.backward(scope, attn, flow, shape);
  ln_1_.backward(scope, saved.ln_1, dnormed_own, stream, own.elems);
}

void Block::backward_input(const Scope& scope, const Saved& saved, const Deferred& deferred,
                           Values stream, Values scratch, BatchShape shape) const {
  const std::int64_t rows = shape.rows();
  const Range own = ranks_.own(rows);
  const auto enter = [&](DropSite site, Values branch) {
    if (branches_off(saved.dropout)) {
      return enter_branch(scope, saved.dropout, site, stream, branch, shape);
    }
    const std::int64_t values = rows * hidden_;
    kernels::cast({branch.data, values, branch.dtype}, {stream.data, values, stream.dtype},
                  scope.stream());
  };
  const auto leave = [&](const Norm& of, const Norm::Saved& at, Values dnormed) {
    of.input_gradient(scope, at, dnormed.at(own.first * hidden_), stream, own.elems);
  };
  enter(DropSite::mlp_output, deferred.mlp_dy);
  mlp_.input_gradient(scope, saved.mlp, {deferred.mlp_dy, deferred.dnormed_2, scratch},
                      deferred.dwide, rows);
  leave(ln_2_, saved.ln_2, deferred.dnormed_2);
  enter(DropSite::attention_output, deferred.attn_dy);
  attn_.input_gradient(scope, saved.attn, deferred.attn_dy, scratch, deferred.dqkv,
                       deferred.dnormed_1, shape);
  leave(ln_1_, saved.ln_1, deferred.dnormed_1);
}

void Block::backward_weight(const BackwardScope& scope, const Saved& saved,
                            const Deferred& deferred, Values scratch, BatchShape shape) const {
  const std::int64_t rows = shape.rows();
  const Range own = ranks_.own(rows);
  MLP::Saved mlp = saved.mlp;
  CausalSelfAttention::Saved attn = saved.attn;
  if (saved.norms_again) { mlp.x = attn.x = scratch; }
  const auto end = [&](const Norm& of, const Norm::Saved& at, Values dnormed) {
    of.parameter_gradients(scope, at, dnormed.at(own.first * hidden_), scratch, own.elems);
  };
  if (saved.norms_again) { norm(scope, ln_2_, saved.ln_2, scratch, rows); }
  mlp_.parameter_gradients(scope, mlp, deferred.mlp_dy, deferred.dwide, scratch.at(rows * hidden_),
                           rows);
  end(ln_2_, saved.ln_2, deferred.dnormed_2);
  if (saved.norms_again) { norm(scope, ln_1_, saved.ln_1, scratch, rows); }
  attn_.parameter_gradients(scope, attn, deferred.attn_dy, deferred.dqkv, rows);
  end(ln_1_, saved.ln_1, deferred.dnormed_1);
}

void Block::drop_and_add(const Scope& scope, const Addition& addition) const {
  const auto& [dropout, site, residual, y, shape] = addition;
  if (!dropout.on()) { return; }
  const Range own = ranks_.own(shape.rows());
  drop(scope, dropout, site, {y, y, shape, hidden_, own});
  kernels::add(residual, y, y, own.elems * hidden_, scope.stream());
}

}  // namespace tessera::nn

#include "tessera/nn/block.hpp"

#include "nn/drop.hpp"
#include "nn/layer.hpp"
#include "tessera/kernels/elementwise.hpp"

namespace tessera::nn {

/// y = residual + drop(y), at a site where something may be dropped.
struct Block::Addition {
  const Dropout& dropout;
  DropSite site;
  ConstValues residual;
  Values y;
  BatchShape shape;

  /// What the product that writes y adds by itself. Dropping comes between the two.
  [[nodiscard]] ConstValues in_product() const { return dropout.on() ? ConstValues{} : residual; }
};

Block::Block(World& world, std::int64_t hidden, std::int64_t heads, std::optional<DType> norms)
    : ln_1_{"ln_1", hidden, norms},
      attn_{world, "attn", hidden, heads},
      ln_2_{"ln_2", hidden, norms},
      mlp_{"mlp", hidden},
      hidden_{hidden} {}

std::vector<ParameterSpec> Block::parameters() const {
  return joined({ln_1_.parameters(), attn_.parameters(), ln_2_.parameters(), mlp_.parameters()});
}

void Block::forward_attention(const Scope& scope, const Saved& saved, BatchShape shape) const {
  ln_1_.forward(scope, saved.ln_1, saved.normed_1, shape.rows());
  const Addition addition{saved.dropout, DropSite::attention_output, saved.ln_1.x, saved.middle,
                          shape};
  attn_.forward(scope, saved.attn, saved.middle, shape, addition.in_product());
  drop_and_add(scope, addition);
  ln_2_.forward(scope, saved.ln_2, saved.normed_2, shape.rows());
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

// The residual branch passes `stream` on unchanged; each norm adds the other branch's gradient.
void Block::backward(const BackwardScope& scope, const Saved& saved, Values stream, Values scratch,
                     BatchShape shape) const {
  const Values dnormed = scratch;
  const std::int64_t values = shape.rows() * hidden_;
  // What was dropped has no gradient; the residual branch still has all of it.
  const Values branch = saved.dropout.on() ? scratch.at(5 * values) : stream;
  const GradientFlow flow{branch, dnormed, scratch.at(values)};
  MLP::Saved mlp = saved.mlp;
  CausalSelfAttention::Saved attn = saved.attn;
  // Where a norm's output is read last, the gradient of it is written.
  if (saved.norms_again) { mlp.x = attn.x = dnormed; }
  drop(scope, saved.dropout, DropSite::mlp_output, {stream, branch, shape, hidden_});
  if (saved.norms_again) { ln_2_.forward(scope, saved.ln_2, dnormed, shape.rows()); }
  mlp_.backward(scope, mlp, flow, shape.rows());
  ln_2_.backward(scope, saved.ln_2, dnormed, stream, shape.rows());
  drop(scope, saved.dropout, DropSite::attention_output, {stream, branch, shape, hidden_});
  if (saved.norms_again) { ln_1_.forward(scope, saved.ln_1, dnormed, shape.rows()); }
  attn_.backward(scope, attn, flow, shape);
  ln_1_.backward(scope, saved.ln_1, dnormed, stream, shape.rows());
}

void Block::drop_and_add(const Scope& scope, const Addition& addition) const {
  const auto& [dropout, site, residual, y, shape] = addition;
  if (!dropout.on()) { return; }
  drop(scope, dropout, site, {y, y, shape, hidden_});
  kernels::add(residual, y, y, shape.rows() * hidden_, scope.stream());
}

}  // namespace tessera::nn

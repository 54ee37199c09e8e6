#include "tessera/nn/block.hpp"

#include "kernels/table.hpp"
#include "nn/layer.hpp"

namespace tessera::nn {

Block::Block(World& world, std::int64_t hidden, std::int64_t heads)
    : world_{&world},
      ln_1_{world, "ln_1", hidden},
      attn_{world, "attn", hidden, heads},
      ln_2_{world, "ln_2", hidden},
      mlp_{world, "mlp", hidden},
      hidden_{hidden} {}

std::vector<ParameterSpec> Block::parameters() const {
  return joined({ln_1_.parameters(), attn_.parameters(), ln_2_.parameters(), mlp_.parameters()});
}

void Block::forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape) const {
  ln_1_.forward(scope, saved.ln_1, saved.normed_1, shape.rows());
  attn_.forward(scope, saved.attn, saved.middle, shape);
  add(scope, saved.ln_1.x, saved.middle, shape.rows());
  ln_2_.forward(scope, saved.ln_2, saved.normed_2, shape.rows());
  mlp_.forward(scope, saved.mlp, y, shape.rows());
  add(scope, saved.middle, y, shape.rows());
}

// The residual branch passes `stream` on unchanged; each norm adds the other branch's gradient.
void Block::backward(const BackwardScope& scope, const Saved& saved, Values stream, Values scratch,
                     BatchShape shape) const {
  const Values dnormed = scratch;
  const GradientFlow flow{stream, dnormed, scratch.at(shape.rows() * hidden_)};
  mlp_.backward(scope, saved.mlp, flow, shape.rows());
  ln_2_.backward(scope, saved.ln_2, dnormed, stream, shape.rows());
  attn_.backward(scope, saved.attn, flow, shape);
  ln_1_.backward(scope, saved.ln_1, dnormed, stream, shape.rows());
}

void Block::add(const Scope& scope, ConstValues residual, Values y, std::int64_t rows) const {
  world_->compute([&] { world_->kernels().add(residual, y, y, rows * hidden_, scope.stream()); });
}

}  // namespace tessera::nn

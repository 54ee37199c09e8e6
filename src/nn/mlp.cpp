#include "tessera/nn/mlp.hpp"

#include <string>

#include "kernels/table.hpp"
#include "nn/layer.hpp"

namespace tessera::nn {

MLP::MLP(World& world, std::string_view prefix, std::int64_t hidden)
    : world_{&world},
      c_fc_{world, std::string{prefix} + ".c_fc", hidden, 4 * hidden},
      c_proj_{world, std::string{prefix} + ".c_proj", 4 * hidden, hidden},
      hidden_{hidden} {}

std::vector<ParameterSpec> MLP::parameters() const {
  return joined({c_fc_.parameters(), c_proj_.parameters()});
}

void MLP::activate(const Scope& scope, const Saved& saved, std::int64_t rows) const {
  c_fc_.forward(scope, saved.x, saved.wide, rows);
  world_->compute([&] {
    world_->kernels().gelu_forward(saved.wide, saved.activated, rows * 4 * hidden_, scope.stream());
  });
}

void MLP::forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows) const {
  activate(scope, saved, rows);
  c_proj_.forward(scope, saved.activated, y, rows);
}

void MLP::backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                   std::int64_t rows) const {
  const Values dwide = flow.scratch;
  c_proj_.backward(scope, saved.activated, flow.dy, dwide, rows);
  world_->compute([&] {
    world_->kernels().gelu_backward(saved.wide, dwide, dwide, rows * 4 * hidden_, scope.stream());
  });
  c_fc_.backward(scope, saved.x, dwide, flow.dx, rows);
}

}  // namespace tessera::nn

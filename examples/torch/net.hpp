// A module that does not depend on Tessera. docs/libtorch.md shards it without a change.
#pragma once
#include <torch/torch.h>

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int width)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        in(register_module("in", torch::nn::Linear(width, 2 * width))),
        out(register_module("out", torch::nn::Linear(2 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + out(torch::gelu(in(norm(x)))); }

  torch::nn::LayerNorm norm;
  torch::nn::Linear in, out;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : in(register_module("in", torch::nn::Linear(2, 32))),
        blocks(register_module("blocks", torch::nn::ModuleList())),
        out(register_module("out", torch::nn::Linear(32, 1))) {
    for (int i = 0; i < 6; ++i) { blocks->push_back(Block(32)); }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = in(x);
    for (const auto& block : *blocks) { x = block->as<Block>()->forward(x); }
    return out(x);
  }

  torch::nn::Linear in;
  torch::nn::ModuleList blocks;
  torch::nn::Linear out;
};
TORCH_MODULE(Net);

// Samples [first, first + rows) of sin(2 a) b.
inline std::pair<torch::Tensor, torch::Tensor> read_batch(long first, long rows) {
  const auto i = torch::arange(first, first + rows, torch::kDouble);
  const auto a = (i * 0.754877666).frac() * 2 - 1, b = (i * 0.569840291).frac() * 2 - 1;
  return {torch::stack({a, b}, 1).to(torch::kFloat),
          (torch::sin(2 * a) * b).unsqueeze(1).to(torch::kFloat)};
}

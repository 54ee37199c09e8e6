#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/torch.hpp"

namespace tessera::torch_test {

using BlockFunction = std::function<at::Tensor(const at::Tensor&)>;
/// Runs a block of a network.
using RunBlock = std::function<at::Tensor(const BlockFunction& block, const at::Tensor& x)>;

inline at::Tensor run_plainly(const BlockFunction& block, const at::Tensor& x) {
  return block(x);
}
inline at::Tensor run_recomputed(const BlockFunction& block, const at::Tensor& x) {
  return tessera::torch::recompute(block, x);
}

/// A residual block. For the backward pass it keeps its input and 5 times the bytes of its output:
/// twice 2 for GELU's input and output, and its output.
struct BlockImpl : ::torch::nn::Module {
  explicit BlockImpl(std::int64_t width)
      : up{register_module("up", ::torch::nn::Linear(width, 2 * width))},
        down{register_module("down", ::torch::nn::Linear(2 * width, width))} {}
  at::Tensor forward(const at::Tensor& x) { return x + down(::torch::gelu(up(x))); }

  ::torch::nn::Linear up;
  ::torch::nn::Linear down;
};
using Block = ::torch::nn::ModuleHolder<BlockImpl>;

/// A sequence of blocks.
struct SmallNetImpl : ::torch::nn::Module {
  SmallNetImpl(int count, std::int64_t width, RunBlock run)
      : run_{std::move(run)}, blocks_{register_module("blocks", ::torch::nn::ModuleList())} {
    for (int i = 0; i < count; ++i) { blocks_->push_back(Block(width)); }
  }
  at::Tensor forward(at::Tensor x) {
    for (std::size_t i = 0; i < blocks_->size(); ++i) {
      x = run_(
          [&block = blocks_->at<BlockImpl>(i)](const at::Tensor& in) { return block.forward(in); },
          x);
    }
    return x;
  }

 private:
  RunBlock run_;
  ::torch::nn::ModuleList blocks_;
};
using SmallNet = ::torch::nn::ModuleHolder<SmallNetImpl>;

/// Calls `make` with libtorch's generator seeded. Ranks that are threads share the generator.
template <class Make>
auto seeded(std::uint64_t seed, Make&& make) {
  static std::mutex mutex;
  const std::lock_guard lock{mutex};
  ::torch::manual_seed(seed);
  return std::forward<Make>(make)();
}

}  // namespace tessera::torch_test

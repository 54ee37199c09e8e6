#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/torch/shard.hpp"

namespace torch_test {

// Outside namespace tessera, where tessera::torch hides libtorch's torch.

/// libtorch has one random generator per process: code that draws from it holds this.
inline std::mutex& generator_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Runs `make` with libtorch's generator at `seed`, so that every rank makes the same module.
template <class Make>
auto seeded(std::uint64_t seed, Make&& make) {
  const std::lock_guard lock{generator_mutex()};
  torch::manual_seed(seed);
  return make();
}

/// A block of a residual network over rows.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width)
      : norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))},
        up{register_module("up", torch::nn::Linear(width, 2 * width + 1))},
        down{register_module("down", torch::nn::Linear(2 * width + 1, width))} {}
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::gelu(up(norm(x)))); }

  torch::nn::LayerNorm norm;
  torch::nn::Linear up;
  torch::nn::Linear down;
};
TORCH_MODULE(Block);

}  // namespace torch_test

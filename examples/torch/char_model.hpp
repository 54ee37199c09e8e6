#pragma once

// A small transformer over bytes, written for libtorch: it does not depend on how it is trained.

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <limits>

struct CharModelSize {
  std::int64_t layers = 4;
  std::int64_t hidden = 64;
  std::int64_t heads = 4;
  std::int64_t length = 32;  ///< bytes that it sees at once
  std::int64_t vocabulary = 256;
};

/// Attention and a perceptron, each after a norm, with residual connections.
struct CharBlockImpl : torch::nn::Module {
  explicit CharBlockImpl(const CharModelSize& size)
      : heads{size.heads},
        norm1{register_module("norm1", norm_of(size))},
        qkv{register_module("qkv", torch::nn::Linear(size.hidden, 3 * size.hidden))},
        out{register_module("out", torch::nn::Linear(size.hidden, size.hidden))},
        norm2{register_module("norm2", norm_of(size))},
        up{register_module("up", torch::nn::Linear(size.hidden, 4 * size.hidden))},
        down{register_module("down", torch::nn::Linear(4 * size.hidden, size.hidden))} {}

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {
    x = x + attend(norm1(x), mask);
    return x + down(torch::gelu(up(norm2(x)), "tanh"));
  }

  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& mask) {
    const std::int64_t batch = x.size(0);
    const std::int64_t length = x.size(1);
    const std::int64_t hidden = x.size(2);
    const auto parts = qkv(x).split(hidden, 2);
    const auto by_head = [&](const torch::Tensor& part) {
      return part.view({batch, length, heads, hidden / heads}).transpose(1, 2);
    };
    const torch::Tensor scores = by_head(parts[0]).matmul(by_head(parts[1]).transpose(2, 3)) /
                                 std::sqrt(static_cast<double>(hidden / heads));
    const torch::Tensor mixed = (scores + mask).softmax(3).matmul(by_head(parts[2]));
    return out(mixed.transpose(1, 2).reshape({batch, length, hidden}));
  }

  static torch::nn::LayerNorm norm_of(const CharModelSize& size) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size.hidden}));
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv;
  torch::nn::Linear out;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up;
  torch::nn::Linear down;
};
TORCH_MODULE(CharBlock);

/// Maps bytes, [batch, length], to a score for each possible next byte. The matrix that embeds
/// bytes also scores them.
struct CharModelImpl : torch::nn::Module {
  explicit CharModelImpl(const CharModelSize& size)
      : bytes{register_module("bytes", torch::nn::Embedding(size.vocabulary, size.hidden))},
        places{register_module("places", torch::nn::Embedding(size.length, size.hidden))},
        blocks{register_module("blocks", torch::nn::ModuleList())},
        norm{register_module("norm", CharBlockImpl::norm_of(size))},
        mask{torch::full({size.length, size.length}, -std::numeric_limits<float>::infinity())
                 .triu(1)} {
    for (std::int64_t i = 0; i < size.layers; ++i) { blocks->push_back(CharBlock(size)); }
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : parameters()) {
      if (parameter.dim() > 1) { parameter.normal_(0.0, 0.02); }
    }
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = bytes(tokens) + places(torch::arange(tokens.size(1)));
    for (const auto& block : *blocks) { x = block->as<CharBlock>()->forward(x, mask); }
    return torch::linear(norm(x), bytes->weight);
  }

  torch::nn::Embedding bytes;
  torch::nn::Embedding places;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
  torch::Tensor mask;
};
TORCH_MODULE(CharModel);

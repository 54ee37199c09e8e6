#pragma once

// A small residual network for images, written for libtorch: it does not depend on how it is
// trained.

#include <torch/torch.h>

/// Two convolutions, each after GroupNorm, with a residual connection.
struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(int in, int out, int stride)
      : norm1{register_module("norm1", torch::nn::GroupNorm(4, in))},
        conv1{register_module("conv1", convolution(in, out, 3, stride))},
        norm2{register_module("norm2", torch::nn::GroupNorm(4, out))},
        conv2{register_module("conv2", convolution(out, out, 3, 1))} {
    if (in != out || stride != 1) {
      shortcut = register_module("shortcut", convolution(in, out, 1, stride));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor h = conv1(torch::relu(norm1(x)));
    return conv2(torch::relu(norm2(h))) + (shortcut ? shortcut(x) : x);
  }

  static torch::nn::Conv2d convolution(int in, int out, int size, int stride) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
  }

  torch::nn::GroupNorm norm1;
  torch::nn::Conv2d conv1;
  torch::nn::GroupNorm norm2;
  torch::nn::Conv2d conv2;
  torch::nn::Conv2d shortcut{nullptr};
};
TORCH_MODULE(ResidualBlock);

/// Maps images of one channel, [batch, 1, height, width], to one score per class.
struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(int classes)
      : stem{register_module("stem", ResidualBlockImpl::convolution(1, 8, 3, 1))},
        blocks{register_module("blocks", torch::nn::ModuleList())},
        norm{register_module("norm", torch::nn::GroupNorm(4, 32))},
        head{register_module("head", torch::nn::Linear(32, classes))} {
    blocks->push_back(ResidualBlock(8, 8, 1));
    blocks->push_back(ResidualBlock(8, 16, 2));
    blocks->push_back(ResidualBlock(16, 16, 1));
    blocks->push_back(ResidualBlock(16, 32, 2));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = stem(x);
    for (const auto& block : *blocks) { x = block->as<ResidualBlock>()->forward(x); }
    return head(torch::relu(norm(x)).mean({2, 3}));
  }

  torch::nn::Conv2d stem;
  torch::nn::ModuleList blocks;
  torch::nn::GroupNorm norm;
  torch::nn::Linear head;
};
TORCH_MODULE(Classifier);

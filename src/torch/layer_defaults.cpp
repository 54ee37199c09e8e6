#include "torch/layer_defaults.hpp"

#include <torch/nn/functional/instancenorm.h>  // instancenorm.h needs it
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include <utility>

namespace tessera::torch {

namespace nn = ::torch::nn;

namespace {

// Calls `found` with the module as its class among these.
template <class... Layers, class Module, class Found>
bool as_one_of(Module& module, Found&& found) {
  const auto as = [&]<class Layer>(Layer* layer) {
    if (layer != nullptr) { found(*layer); }
    return layer != nullptr;
  };
  return (as(dynamic_cast<Layers*>(&module)) || ...);
}

template <class Found>
bool as_norm_with_buffers(nn::Module& module, Found&& found) {
  return as_one_of<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                   nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(
      module, std::forward<Found>(found));
}

template <class Found>
bool as_layer_with_reset(nn::Module& module, Found&& found) {
  return as_one_of<nn::LinearImpl, nn::BilinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
                   nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl,
                   nn::EmbeddingImpl, nn::EmbeddingBagImpl, nn::LayerNormImpl, nn::GroupNormImpl,
                   nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl, nn::RNNCellImpl, nn::LSTMCellImpl,
                   nn::GRUCellImpl>(module, std::forward<Found>(found)) ||
         as_norm_with_buffers(module, std::forward<Found>(found));
}

}  // namespace

bool has_default_values(const nn::Module& module) {
  auto& layer = const_cast<nn::Module&>(module);  // only its class is queried
  return as_layer_with_reset(layer, [](const auto&) {}) ||
         as_one_of<nn::PReLUImpl, nn::MultiheadAttentionImpl>(layer, [](const auto&) {});
}

void set_default_values(nn::Module& module) {
  const at::NoGradGuard no_grad;
  if (as_layer_with_reset(module, [](auto& layer) { layer.reset_parameters(); })) { return; }
  if (auto* const prelu = dynamic_cast<nn::PReLUImpl*>(&module)) {
    prelu->weight.fill_(prelu->options.init());
  } else if (auto* const attention = dynamic_cast<nn::MultiheadAttentionImpl*>(&module)) {
    attention->_reset_parameters();
  }
}

bool set_default_buffers(nn::Module& module) {
  const at::NoGradGuard no_grad;
  return as_norm_with_buffers(module, [](auto& norm) { norm.reset_running_stats(); });
}

}  // namespace tessera::torch

// Modules built without memory, and their initial values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/torch.hpp"
#include "tessera/world/run.hpp"
#include "torch/state_net.hpp"

// Written like a program that does not know tessera.
namespace plain_nets {

namespace nn = ::torch::nn;

/// Layers with buffers, attention in units, and parameters outside of units.
struct MetaNetImpl : nn::Module {
  nn::Embedding tokens{nullptr};
  nn::Sequential layers;
  nn::BatchNorm1d norm{nullptr};
  at::Tensor gain, tied;

  explicit MetaNetImpl(std::int64_t width = 16) {
    tokens = register_module("tokens", nn::Embedding(11, width));
    for (int i = 0; i < 4; ++i) { layers->push_back(nn::Linear(width, width)); }
    register_module("layers", layers);
    norm = register_module("norm", nn::BatchNorm1d(width));
    gain = register_parameter("gain", ::torch::ones({width}));
    tied = register_parameter("tied", tokens->weight);
  }
  at::Tensor forward(const at::Tensor& x) {
    return ::torch::matmul(norm(layers->forward(tokens(x))) * gain, tied.t());
  }
};
TORCH_MODULE(MetaNet);

struct OwnBufferImpl : nn::Module {
  nn::Linear layer{nullptr};
  explicit OwnBufferImpl(bool named_cpu) {
    layer = register_module("layer", nn::Linear(2, 2));
    const auto options = ::torch::TensorOptions{}.dtype(::torch::kLong);
    register_buffer("places",
                    ::torch::arange(4, named_cpu ? options.device(::torch::kCPU) : options));
  }
};
TORCH_MODULE(OwnBuffer);

}  // namespace plain_nets

namespace tessera::torch_meta_test {
namespace {

namespace nn = ::torch::nn;
using plain_nets::MetaNet;
using plain_nets::MetaNetImpl;
using plain_nets::OwnBuffer;
using tessera::torch::ModuleInitializer;
using tessera::torch::on_meta;
using tessera::torch::ShardOptions;
using test::bits;
using test::difference;
using test::libtorch_mutex;
using test::message_of;
using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ModuleInitializer gain_of(float value) {
  return [value](const std::string& name, nn::Module& module) {
    if (auto* const net = dynamic_cast<MetaNetImpl*>(&module)) {
      EXPECT_EQ(name, "");
      EXPECT_TRUE(net->gain.is_cpu());
      net->gain.fill_(value);
      net->tied.fill_(value);  // no effect: the embedding owns it
    }
  };
}

template <class Module>
Tensors first_state(int ranks, const std::function<Module()>& build, const ShardOptions& options) {
  Tensors state;
  run_ranks(ranks, [&](World& world) {
    auto model = tessera::torch::shard(on_meta(build), world, options);
    const Tensors mine = model.state_dict();
    if (world.rank() == 0) { state = mine; }
  });
  return state;
}

TEST(TorchMeta, AModuleStartsFromTheSameBitsUnderEveryStrategyOnAnyRanks) {
  const std::function<MetaNet()> build = [] { return MetaNet{}; };
  const auto options = [](Strategy strategy, std::uint64_t seed) {
    return ShardOptions{.model = {.strategy = strategy}, .initial = gain_of(3.0F), .seed = seed};
  };
  ::torch::manual_seed(11);
  const at::Tensor next = ::torch::rand({3});
  ::torch::manual_seed(11);
  const Tensors expected = first_state(1, build, options(Strategy::ddp, 7));
  EXPECT_EQ(bits(::torch::rand({3})), bits(next)) << "the generator has moved";

  EXPECT_EQ(bits(expected.at("gain")), bits(::torch::full({16}, 3.0F)));
  EXPECT_EQ(bits(expected.at("tied")), bits(expected.at("tokens.weight")));
  // bound: five standard deviations of a deviation
  EXPECT_NEAR(expected.at("tied").std().item<float>(), 1.0F, 0.2F);
  EXPECT_EQ(bits(expected.at("norm.running_var")), bits(::torch::ones({16})));
  EXPECT_EQ(bits(expected.at("norm.num_batches_tracked")), bits(::torch::tensor(0, at::kLong)));
  std::set<std::string> weights;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor& weight = expected.at("layers." + std::to_string(i) + ".weight");
    EXPECT_LE(weight.abs().max().item<float>(), 0.25F);  // 1 / sqrt(16)
    EXPECT_GT(weight.std().item<float>(), 0.1F);
    weights.insert(bits(weight));
  }
  EXPECT_EQ(weights.size(), 4U) << "layers share random numbers";

  for (const Strategy strategy :
       {Strategy::dp, Strategy::zero1, Strategy::zero2, Strategy::zero3, Strategy::hybrid}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(::testing::Message() << to_string(strategy) << " on " << ranks);
      EXPECT_EQ(difference(first_state(ranks, build, options(strategy, 7)), expected), "");
    }
  }
  ShardOptions other_units = options(Strategy::zero3, 7);
  other_units.units = tessera::torch::units_named({"layers", "tokens"});
  EXPECT_EQ(difference(first_state(2, build, other_units), expected), "");
  EXPECT_THAT(
      difference(first_state(2, build, options(Strategy::zero3, 8)), expected),
      AllOf(HasSubstr("layers.0.weight"), HasSubstr("tokens.weight"), Not(HasSubstr("gain"))));
}

TEST(TorchMeta, AModuleTrainsAsOneWithTheSameWeights) {
  std::vector<double> losses[2];
  Tensors state;
  const auto train = [&](auto& model, std::vector<double>& kept) {
    model.optimize_with(AdamW{});
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = ::torch::arange(8, at::kLong) + step;
      model.backward(nn::functional::cross_entropy(model(x), x));
      model.step();
      kept.push_back(model.report().loss);
    }
  };
  run_ranks(1, [&](World& world) {
    auto model =
        tessera::torch::shard(on_meta([] { return MetaNet{}; }), world,
                              {.model = {.strategy = Strategy::zero3}, .initial = gain_of(1.0F)});
    state = model.state_dict();
    train(model, losses[0]);
  });
  run_ranks(1, [&](World& world) {
    MetaNet net;
    {
      const ::torch::NoGradGuard no_grad;
      for (auto& [name, tensor] : test::tensors_of(*net)) { tensor.copy_(state.at(name)); }
    }
    auto model = tessera::torch::shard(net, world, {.model = {.strategy = Strategy::zero3}});
    train(model, losses[1]);
  });
  EXPECT_EQ(losses[0], losses[1]);
}

struct Layer {
  const char* name;
  std::function<std::shared_ptr<nn::Module>()> build;
};

template <class Holder, class... Arguments>
Layer layer(const char* name, Arguments... arguments) {
  return {name, [=] { return std::static_pointer_cast<nn::Module>(Holder(arguments...).ptr()); }};
}

std::vector<Layer> all_layers() {
  return {
      layer<nn::Linear>("Linear", 40, 30),
      layer<nn::Bilinear>("Bilinear", 10, 12, 14),
      layer<nn::Conv1d>("Conv1d", nn::Conv1dOptions(8, 12, 3)),
      layer<nn::Conv2d>("Conv2d", nn::Conv2dOptions(8, 12, 3).groups(2)),
      layer<nn::Conv3d>("Conv3d", nn::Conv3dOptions(4, 6, 3).bias(false)),
      layer<nn::ConvTranspose1d>("ConvTranspose1d", nn::ConvTranspose1dOptions(8, 12, 3)),
      layer<nn::ConvTranspose2d>("ConvTranspose2d", nn::ConvTranspose2dOptions(8, 12, 3)),
      layer<nn::ConvTranspose3d>("ConvTranspose3d", nn::ConvTranspose3dOptions(4, 6, 3)),
      layer<nn::Embedding>("Embedding", nn::EmbeddingOptions(40, 10).padding_idx(3)),
      layer<nn::EmbeddingBag>("EmbeddingBag", nn::EmbeddingBagOptions(40, 10)),
      layer<nn::LayerNorm>("LayerNorm", nn::LayerNormOptions({6, 7})),
      layer<nn::GroupNorm>("GroupNorm", nn::GroupNormOptions(2, 8)),
      layer<nn::BatchNorm1d>("BatchNorm1d", 8),
      layer<nn::BatchNorm2d>("BatchNorm2d", 8),
      layer<nn::BatchNorm3d>("BatchNorm3d", nn::BatchNorm3dOptions(8).track_running_stats(false)),
      layer<nn::InstanceNorm1d>(
          "InstanceNorm1d", nn::InstanceNorm1dOptions(8).affine(true).track_running_stats(true)),
      layer<nn::InstanceNorm2d>("InstanceNorm2d", nn::InstanceNorm2dOptions(8).affine(true)),
      layer<nn::InstanceNorm3d>("InstanceNorm3d", nn::InstanceNorm3dOptions(8).affine(true)),
      layer<nn::RNN>("RNN", nn::RNNOptions(12, 14).num_layers(2)),
      layer<nn::LSTM>("LSTM", nn::LSTMOptions(12, 14).bidirectional(true)),
      layer<nn::GRU>("GRU", nn::GRUOptions(12, 14)),
      layer<nn::RNNCell>("RNNCell", 12, 14),
      layer<nn::LSTMCell>("LSTMCell", 12, 14),
      layer<nn::GRUCell>("GRUCell", 12, 14),
      layer<nn::MultiheadAttention>(
          "MultiheadAttention",
          nn::MultiheadAttentionOptions(16, 4).add_bias_kv(true).kdim(12).vdim(14)),
      layer<nn::PReLU>("PReLU", nn::PReLUOptions().num_parameters(5).init(0.125)),
      layer<nn::TransformerEncoderLayer>("TransformerEncoderLayer", 16, 4),
      layer<nn::Transformer>("Transformer",
                             nn::TransformerOptions(32, 2, 1, 1).dim_feedforward(48)),
  };
}

// Values of libtorch's layers match those of a plainly built layer, in size and number.
TEST(TorchMeta, EveryLibtorchLayerGetsItsInitialValues) {
  for (const Layer& one : all_layers()) {
    SCOPED_TRACE(one.name);
    ::torch::manual_seed(1);
    const std::shared_ptr<nn::Module> real = one.build();
    for (const at::Tensor& parameter : on_meta(one.build)->parameters()) {
      EXPECT_TRUE(parameter.is_meta());
    }
    ShardOptions options{.model = {.strategy = Strategy::zero3}};
    if (real->children().size() > 0) {  // layers that set parameters of others
      options.units = [](const std::string&, const nn::Module& module) {
        return dynamic_cast<const nn::LinearImpl*>(&module) != nullptr;
      };
    }
    const Tensors state = first_state<std::shared_ptr<nn::Module>>(2, one.build, options);
    const Tensors expected = test::tensors_of(*real);
    ASSERT_EQ(state.size(), expected.size());
    for (const auto& [name, tensor] : state) {
      const at::Tensor& like = expected.at(name).detach();
      ASSERT_EQ(tensor.sizes(), like.sizes()) << name;
      const double size = tensor.to(at::kDouble).abs().mean().item<double>();
      const double size_of_like = like.to(at::kDouble).abs().mean().item<double>();
      // The mean of uniform values lies within 4 standard deviations.
      const double spread = tensor.numel() >= 256 ? 0.2 : 0.6;
      EXPECT_NEAR(size, size_of_like, spread * size_of_like) << name;
      EXPECT_EQ(tensor.numel() > 1 && tensor.to(at::kDouble).std().item<double>() > 0,
                like.numel() > 1 && like.to(at::kDouble).std().item<double>() > 0)
          << name;
    }
  }
}

TEST(TorchMeta, FillsDoNothingOnMetaAndDrawNoNumbers) {
  ::torch::manual_seed(4);
  const at::Tensor next = ::torch::rand({3});
  ::torch::manual_seed(4);
  {
    const tessera::torch::MetaGuard guard;
    const tessera::torch::MetaGuard nested;
    const at::Tensor weight = ::torch::empty({6, 5});
    EXPECT_TRUE(weight.is_meta());
    const std::vector<std::function<void()>> fills{
        [&] { nn::init::normal_(weight, 0.0, 0.02); },
        [&] { nn::init::uniform_(weight); },
        [&] { nn::init::xavier_normal_(weight); },
        [&] { nn::init::kaiming_uniform_(weight); },
        [&] { nn::init::constant_(weight, 2.0); },
        [&] { nn::init::eye_(weight); },
        [&] { nn::init::dirac_(::torch::empty({3, 3, 2})); },
        [&] { nn::init::sparse_(weight, 0.5); },
        [&] { weight.detach().bernoulli_(0.5).exponential_().random_(7).log_normal_(); },
        [&] { weight.detach().copy_(::torch::randn({6, 5})); },
        [&] { weight.detach().narrow(0, 0, 2).zero_(); },
        [&] { weight.detach().index_put_({0, 1}, 3.0).fill_diagonal_(1.0); },
        [&] { weight.detach().erfinv_().mul_(2.0).clamp_(-2.0, 2.0).tril_(); },
        [&] { nn::init::orthogonal_(weight); },
        [&] { EXPECT_TRUE(::torch::randperm(9).is_meta()); },
        [&] { EXPECT_TRUE(::torch::where(weight > 0, weight, -weight).is_meta()); },
        [&] { EXPECT_EQ(::torch::tril_indices(3, 3).size(1), 6); },
    };
    for (std::size_t i = 0; i < fills.size(); ++i) { EXPECT_NO_THROW(fills[i]()) << i; }
    for (const at::Tensor& made :
         {::torch::randn({2}), ::torch::full({2}, 1.0), ::torch::arange(3), ::torch::eye(2),
          ::torch::zeros_like(weight), weight.to(::torch::kCPU), weight.to(::torch::kBFloat16),
          ::torch::linspace(0, 1, 4), ::torch::stack({weight, weight}), weight.clone()}) {
      EXPECT_TRUE(made.is_meta());
    }
    const at::Tensor given = ::torch::tensor(std::vector<float>{1.0F, 2.0F});
    EXPECT_EQ(given[1].item<float>(), 2.0F);
    EXPECT_TRUE(::torch::zeros({2}, ::torch::kCPU).is_cpu());
    EXPECT_TRUE(::torch::zeros_like(given).is_cpu());
  }
  EXPECT_TRUE(::torch::empty({2}).is_cpu());
  EXPECT_EQ(bits(::torch::rand({3})), bits(next));
}

TEST(TorchMeta, RefusesTensorsThatNothingInitialises) {
  struct Case {
    const char* what;
    std::function<std::shared_ptr<nn::Module>()> build;
    ModuleInitializer initial;
    std::vector<std::string> says;
  };
  const auto meta_net = [] { return on_meta([] { return MetaNet{}.ptr(); }); };
  const std::vector<Case> cases{
      {"own parameters", meta_net, {}, {"\"gain\"", "ShardOptions::initial"}},
      {"a parameter that is forgotten",
       meta_net,
       [](const std::string&, nn::Module&) {},
       {"\"gain\"", "without values"}},
      {"a buffer on meta",
       [] { return on_meta([] { return OwnBuffer(false).ptr(); }); },
       {},
       {"\"places\"", "torch::kCPU"}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    run_ranks(2, [&](World& world) {
      const std::string text = message_of<ContractError>(
          [&] { (void)tessera::torch::shard(one.build(), world, {.initial = one.initial}); });
      for (const std::string& part : one.says) { EXPECT_THAT(text, HasSubstr(part)); }
      EXPECT_THAT(text, Not(HasSubstr("layers")));
    });
  }
  run_ranks(1, [&](World& world) {
    EXPECT_THAT(
        message_of<ContractError>([&] {
          (void)on_meta([&] { return tessera::torch::shard(nn::Linear(2, 2), world).report(); });
        }),
        HasSubstr("within on_meta"));
    // Works with its own values, or with values set later.
    auto model = tessera::torch::shard(on_meta([] { return OwnBuffer(true); }), world);
    EXPECT_EQ(bits(model.state_dict().at("places")), bits(::torch::arange(4)));
    auto later = tessera::torch::shard(on_meta([] { return MetaNet{}; }), world,
                                       {.initial = tessera::torch::loaded_later()});
    EXPECT_EQ(bits(later.state_dict().at("gain")), bits(::torch::zeros({16})));
  });
}

// A rank holds its shard and one unit while it makes values, never the whole model.
TEST(TorchMeta, HoldsAShardAndOneUnitWhileValuesAreMade) {
  static constexpr std::int64_t kWidth = 96;
  constexpr int kLayers = 32;
  constexpr std::size_t kUnit = (kWidth * kWidth + kWidth) * sizeof(float);  // of layers
  run_ranks(4, [&](World& world) {
    std::atomic<int> calls = 0;
    auto model =
        tessera::torch::shard(on_meta([] {
                                nn::Sequential net;
                                for (int i = 0; i < kLayers; ++i) {
                                  net->push_back(nn::Linear(kWidth, kWidth));
                                }
                                return net;
                              }),
                              world,
                              {.model = {.strategy = Strategy::zero3},
                               .initial = [&](const std::string&, nn::Module&) { ++calls; }});
    EXPECT_EQ(calls, kLayers) << "each unit is made once";
    const MemoryReport memory = world.memory().report();
    EXPECT_LE(memory.peak_bytes, memory.live.total() + kUnit + kUnit / 2);
    EXPECT_LT(memory.live.total(), kLayers * kUnit);
  });
}

}  // namespace
}  // namespace tessera::torch_meta_test

// How a module is divided into units: by default, and by names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "modules.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/tessera.hpp"
#include "torch/module_units.hpp"

namespace torch_test::units_test {
namespace {

using tessera::Strategy;
using tessera::World;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace nn = torch::nn;
namespace shards = tessera::torch;

std::vector<std::string> units_of(const nn::Module& module,
                                  const shards::UnitPredicate& is_unit = {}) {
  std::vector<std::string> names;
  for (const shards::ModuleUnit& unit : shards::units_of(module, is_unit)) {
    names.push_back(unit.name);
  }
  return names;
}

/// A module made of children, and perhaps a parameter of its own.
struct Made : nn::Module {
  template <class Child>
  Made& with(const std::string& name, Child child) {
    register_module(name, std::move(child));
    return *this;
  }
  Made& with_own(std::int64_t elems) {
    register_parameter("own", torch::zeros({elems}));
    return *this;
  }
};
std::shared_ptr<Made> made() {
  return std::make_shared<Made>();
}

nn::Linear square(std::int64_t width) {
  return nn::Linear(width, width);
}

TEST(TorchDefaultUnits, AreTheChildrenOfAModuleWithoutContainers) {
  const auto mnist = made();
  mnist->with("conv1", nn::Conv2d(1, 32, 3)).with("conv2", nn::Conv2d(32, 64, 3));
  mnist->with("drop", nn::Dropout(0.5)).with("fc1", nn::Linear(9216, 128));
  mnist->with("fc2", nn::Linear(128, 96));
  // fc1 has most of the elements, and no children to be opened.
  EXPECT_THAT(units_of(*mnist), ElementsAre("conv1..conv2", "fc1", "fc2"));
  const auto lstm = made();
  lstm->with("lstm", nn::LSTM(8, 16)).with("head", nn::Linear(16, 8));
  EXPECT_THAT(units_of(*lstm), ElementsAre("lstm", "head"));
}

TEST(TorchDefaultUnits, OpenContainersAndKeepTheRestOutOfTheRoot) {
  const auto net = made();
  nn::ModuleList blocks;
  for (int i = 0; i < 3; ++i) { blocks->push_back(Block(6)); }
  net->with("in", square(6)).with("blocks", blocks).with("out", square(6));
  EXPECT_THAT(units_of(*net), ElementsAre("in", "blocks.0", "blocks.1", "blocks.2", "out"));
  net->with_own(5);
  EXPECT_THAT(units_of(*net),
              ElementsAre("(root)", "in", "blocks.0", "blocks.1", "blocks.2", "out"));

  const auto outer = made();
  outer->with("backbone", net).with("head", square(6));
  EXPECT_THAT(units_of(*outer),
              ElementsAre("(root)", "backbone.in", "backbone.blocks.0", "backbone.blocks.1",
                          "backbone.blocks.2", "backbone.out", "head"));

  // Within a list, a list is a unit.
  nn::ModuleList layers;
  layers->push_back(nn::Sequential(square(6), nn::ReLU(), square(6)));
  layers->push_back(nn::Sequential(square(6), square(6)));
  layers->push_back(square(6));
  EXPECT_THAT(units_of(*layers), ElementsAre("0", "1", "2"));
}

TEST(TorchDefaultUnits, AChildWithMostOfTheModuleIsOpened) {
  const auto trunk = made();
  trunk->with("a", square(10)).with("b", square(10)).with("c", square(10));
  const auto net = made();
  net->with("trunk", trunk).with("head", square(12));
  EXPECT_THAT(units_of(*net), ElementsAre("trunk.a", "trunk.b", "trunk.c", "head"));
  const auto half = made();
  half->with("trunk", trunk).with("head", square(40));
  EXPECT_THAT(units_of(*half), ElementsAre("trunk", "head"));
}

TEST(TorchDefaultUnits, TinyNeighboursAreJoinedAndKeepTheirNames) {
  const nn::Sequential net(nn::Conv2d(8, 16, 3), nn::BatchNorm2d(16), nn::ReLU(),
                           nn::Conv2d(16, 16, 3), nn::BatchNorm2d(16), nn::Linear(16, 10));
  const std::vector<shards::ModuleUnit> units = shards::units_of(*net, {});
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].name, "0..1");
  EXPECT_EQ(units[1].name, "3..4");
  EXPECT_EQ(units[2].name, "5");  // 170 elements are more than a sixteenth of the 2320 before
  std::vector<std::string> names;
  for (const shards::ModuleUnit& unit : units) {
    EXPECT_FALSE(unit.contains_units);
    for (const shards::ModuleParameter& parameter : unit.parameters) {
      names.push_back(shards::full_name(unit.name, parameter.name));
      EXPECT_EQ(names.back(), parameter.names.front());
    }
  }
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias",
                                 "4.weight", "4.bias", "5.weight", "5.bias"));

  // In front of the first large one; not with a child of another parent, and not without end.
  const auto mixed = made();
  nn::ModuleList list;
  list->push_back(square(200));
  mixed->with("stem", nn::LayerNorm(nn::LayerNormOptions({32}))).with("wide", square(200));
  mixed->with("list", list).with("norm", nn::LayerNorm(nn::LayerNormOptions({32})));
  EXPECT_THAT(units_of(*mixed), ElementsAre("stem..wide", "list.0", "norm"));
  nn::Sequential many(square(64));  // 4160 elements: two times 72 are less than a sixteenth
  for (int i = 0; i < 6; ++i) { many->push_back(square(8)); }
  EXPECT_THAT(units_of(*many), ElementsAre("0..3", "4", "5", "6"));
  const nn::Sequential similar(square(8), square(8), square(8));
  EXPECT_THAT(units_of(*similar), ElementsAre("0", "1", "2"));
}

TEST(TorchDefaultUnits, AModuleInTwoPlacesIsInTheFirstAndASharedTensorInTheRoot) {
  const nn::Linear twice = square(6);
  const auto net = made();
  net->with("a", twice).with("b", square(6)).with("c", twice);
  EXPECT_THAT(units_of(*net), ElementsAre("a", "b"));
  nn::Linear tied = square(6);
  tied->register_parameter("other", twice->weight);
  net->with("d", tied);
  const std::vector<shards::ModuleUnit> units = shards::units_of(*net, {});
  EXPECT_EQ(units.front().name, "(root)");
  EXPECT_EQ(units.front().parameters.at(0).names,
            (std::vector<std::string>{"a.weight", "c.weight", "d.other"}));
}

TEST(TorchUnitsNamed, TakeGlobsOfParts) {
  const auto net = made();
  const auto layer = made();
  layer->with("a", square(4)).with("b", square(4));
  net->with("conv1", square(4)).with("conv2", square(4));
  net->with("layer3", layer).with("fc", square(4));
  const auto named = [&](const std::vector<std::string>& patterns) {
    return units_of(*net, shards::units_named(patterns));
  };
  EXPECT_THAT(named({"conv*"}), ElementsAre("(root)", "conv1", "conv2"));
  EXPECT_THAT(named({"layer?.*"}), ElementsAre("(root)", "layer3.a", "layer3.b"));
  EXPECT_THAT(named({"layer?.?", "*c"}), ElementsAre("(root)", "layer3.a", "layer3.b", "fc"));
  EXPECT_THAT(named({"*"}), ElementsAre("conv1", "conv2", "layer3", "fc"));
  EXPECT_THAT(named({"c*v?"}), ElementsAre("(root)", "conv1", "conv2"));
  EXPECT_THAT(named({"c**2"}), ElementsAre("(root)", "conv2"));
  for (const std::string pattern : {"conv", "layer?", "*.*.*", "?", "conv?.*", ""}) {
    if (pattern == "layer?") {
      EXPECT_THAT(named({pattern}), ElementsAre("(root)", "layer3"));
      continue;
    }
    try {
      static_cast<void>(named({pattern}));
      ADD_FAILURE() << pattern;
    } catch (const tessera::ContractError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ShardOptions::units matches no module"));
      EXPECT_THAT(error.what(), HasSubstr("conv1, conv2, layer3, layer3.a, layer3.b, fc"));
    }
  }
}

TEST(TorchUnitsNamed, AnErrorListsTwentyNamesAtMost) {
  nn::Sequential net;
  for (int i = 0; i < 23; ++i) { net->push_back(square(2)); }
  try {
    static_cast<void>(units_of(*net, shards::units_named({"x"})));
    ADD_FAILURE();
  } catch (const tessera::ContractError& error) {
    EXPECT_THAT(error.what(), ::testing::EndsWith("18, 19, and 3 more"));
  }
}

// A convolution, its norm and a head: joined units, under the module's names in every file.
struct SmallImpl : nn::Module {
  SmallImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 16, 3).padding(1)));
    norm = register_module("norm", nn::GroupNorm(nn::GroupNormOptions(2, 8)));
    mid = register_module("mid", nn::Conv2d(nn::Conv2dOptions(16, 8, 3).padding(1)));
    out = register_module("out", nn::Linear(8, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out(norm(mid(torch::relu(conv(x)))).mean({2, 3}));
  }
  nn::Conv2d conv{nullptr}, mid{nullptr};
  nn::GroupNorm norm{nullptr};
  nn::Linear out{nullptr};
};

using Values = std::map<std::string, std::vector<float>>;

Values values_of(const std::map<std::string, torch::Tensor>& state) {
  Values values;
  for (const auto& [name, tensor] : state) {
    const float* const first = tensor.data_ptr<float>();
    values.emplace(name, std::vector<float>(first, first + tensor.numel()));
  }
  return values;
}

TEST(TorchUnitsInFiles, NeitherCheckpointsNorWeightsKnowTheUnits) {
  const tessera::test::TemporaryFolder folder;
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    tessera::run_ranks(2, [&](World& world) {
      const auto built = [] { return seeded(1, [] { return std::make_shared<SmallImpl>(); }); };
      const torch::Tensor x = torch::ones({3, 2, 4, 4}) * (world.rank() + 1);
      const auto step = [&](auto& model) {
        model.backward(model(x).pow(2).mean());
        model.step();
      };
      const std::filesystem::path where = folder.path() / tessera::to_string(strategy);
      auto model = shards::shard(built(), world, {.model = {.strategy = strategy}});
      EXPECT_EQ(model.model().unit_name(model.model().unit(0)), "conv..norm");
      model.optimize_with(tessera::AdamW{});
      step(model);
      const std::filesystem::path saved = model.save(where);
      step(model);
      const Values expected = values_of(model.state_dict(/*on_all_ranks=*/true));

      auto other = shards::shard(
          built(), world,
          {.model = {.strategy = strategy}, .units = shards::units_named({"mid", "norm"})});
      other.optimize_with(tessera::AdamW{});
      static_cast<void>(other.load(saved));
      step(other);
      EXPECT_EQ(values_of(other.state_dict(true)), expected);
      const tessera::LoadReport weights =
          other.load(saved, {.what = tessera::LoadOptions::What::weights});
      EXPECT_THAT(weights.missing, ElementsAre());
      EXPECT_THAT(weights.unexpected, ElementsAre());
      if (world.rank() == 0) {
        std::vector<std::string> names;
        for (const auto& [name, value] : expected) { names.push_back(name); }
        EXPECT_THAT(names, ElementsAre("conv.bias", "conv.weight", "mid.bias", "mid.weight",
                                       "norm.bias", "norm.weight", "out.bias", "out.weight"));
      }
    });
  }
}

}  // namespace
}  // namespace torch_test::units_test

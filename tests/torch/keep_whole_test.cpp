// Under zero3 a libtorch module of any kind holds at most what ddp holds, and from four similar
// blocks on what zero3's formula says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "modules.hpp"
#include "tessera/tessera.hpp"

namespace torch_test::keep_whole_test {
namespace {

using tessera::Category;
using tessera::Strategy;
using tessera::World;
namespace nn = torch::nn;
namespace shards = tessera::torch;

struct Kind {
  std::string name;
  std::function<std::shared_ptr<nn::Module>()> build;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

struct Classifier : nn::Module {
  Classifier() {
    register_module("conv1", nn::Conv2d(1, 8, 3));
    register_module("conv2", nn::Conv2d(8, 16, 3));
    register_module("fc1", nn::Linear(400, 40));
    register_module("fc2", nn::Linear(40, 10));
  }
};
struct Recurrent : nn::Module {
  Recurrent() {
    register_module("embedding", nn::Embedding(60, 16));
    register_module("lstm", nn::LSTM(nn::LSTMOptions(16, 32).num_layers(2)));
    register_module("head", nn::Linear(32, 60));
  }
};
struct Generator : nn::Module {
  Generator() {
    nn::Sequential layers;
    for (const int channels : {64, 32, 16}) {
      layers->push_back(nn::ConvTranspose2d(2 * channels, channels, 4));
      layers->push_back(nn::BatchNorm2d(channels));
      layers->push_back(nn::ReLU());
    }
    register_module("main", layers);
  }
};
struct OwnParameters : nn::Module {
  OwnParameters() { register_parameter("table", torch::zeros({70, 30})); }
};
struct Stack : nn::Module {
  explicit Stack(int blocks, std::int64_t embedding = 0) {
    nn::ModuleList list;
    for (int i = 0; i < blocks; ++i) { list->push_back(Block(24)); }
    register_module("blocks", list);
    if (embedding > 0) { register_parameter("table", torch::zeros({embedding, 24})); }
  }
};

std::vector<Kind> kinds() {
  return {{"ConvClassifier", [] { return std::make_shared<Classifier>(); }},
          {"Lstm", [] { return std::make_shared<Recurrent>(); }},
          {"Generator", [] { return std::make_shared<Generator>(); }},
          {"OwnParametersOnly", [] { return std::make_shared<OwnParameters>(); }},
          {"OneLayer", [] { return std::make_shared<Stack>(1); }},
          {"TwoBlocks", [] { return std::make_shared<Stack>(2); }},
          {"ThreeBlocks", [] { return std::make_shared<Stack>(3); }},
          {"FiveBlocksAndATable", [] { return std::make_shared<Stack>(5, 300); }}};
}

struct Held {
  tessera::ModelStateBytes state;
  std::size_t gather = 0;
  std::size_t reduce = 0;
  std::vector<tessera::WholeUnits> whole;
  std::vector<std::string> notes;
  [[nodiscard]] std::size_t all() const {
    return state.parameters + state.gradients + state.optimizer + gather + reduce;
  }
};

Held held(const Kind& kind, int ranks, Strategy strategy, const tessera::Optimizer& optimizer) {
  Held held;
  tessera::run_ranks(ranks, [&](World& world) {
    const auto module = seeded(1, kind.build);
    auto model = shards::shard(module, world, {.model = {.strategy = strategy}});
    model.optimize_with(optimizer);
    if (world.rank() != 0) { return; }
    const tessera::CategoryBytes live = world.memory().report().live;
    held = {model.model().state_bytes(), live[Category::gather], live[Category::reduce],
            model.model().whole_units(), world.memory().notes()};
  });
  return held;
}

class TorchKinds : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, TorchKinds, ::testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

TEST_P(TorchKinds, HoldAtMostWhatDdpHoldsAndSayWhatIsWhole) {
  for (const tessera::Optimizer& optimizer :
       {tessera::Optimizer{tessera::AdamW{}}, tessera::Optimizer{tessera::SGD{}}}) {
    for (const int ranks : {2, 4}) {
      const Held ddp = held(GetParam(), ranks, Strategy::ddp, optimizer);
      for (const Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
        const Held one = held(GetParam(), ranks, strategy, optimizer);
        EXPECT_LE(one.all(), ddp.all()) << ranks << " ranks, " << tessera::to_string(strategy);
        EXPECT_EQ(one.notes.size(), one.whole.size());
        for (std::size_t i = 0; i < one.notes.size(); ++i) {
          EXPECT_EQ(one.notes[i], tessera::describe(one.whole[i]));
        }
      }
      EXPECT_TRUE(ddp.whole.empty());
    }
  }
}

TEST(TorchFormula, HoldsFromFourSimilarBlocksOn) {
  for (const int blocks : {4, 5, 12}) {
    const Kind kind{"", [=] { return std::make_shared<Stack>(blocks); }};
    const Held ddp = held(kind, 4, Strategy::ddp, tessera::AdamW{});
    const Held zero3 = held(kind, 4, Strategy::zero3, tessera::AdamW{});
    const std::size_t block = ddp.state.parameters / static_cast<std::size_t>(blocks);
    EXPECT_TRUE(zero3.whole.empty());
    EXPECT_EQ(zero3.state,
              (tessera::ModelStateBytes{ddp.state.parameters / 4, ddp.state.gradients / 4,
                                        ddp.state.optimizer / 4}));
    EXPECT_EQ(zero3.gather, 2 * block);
    EXPECT_EQ(zero3.reduce, 2 * block);
  }
}

}  // namespace
}  // namespace torch_test::keep_whole_test

// Training loops as PyTorch's users write them: each makes the passes of a step once with libtorch
// alone and once sharded, and the gradients have the same bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "modules.hpp"
#include "tessera/tessera.hpp"

namespace torch_test::loops_test {
namespace {

using tessera::CommError;
using tessera::ContractError;
using tessera::run_ranks;
using tessera::SGD;
using tessera::Strategy;
using tessera::World;
namespace shards = tessera::torch;
using ::testing::HasSubstr;
using torch::Tensor;
using Tensors = std::map<std::string, Tensor>;

constexpr std::int64_t kWidth = 6;

// Every block is used twice, and zero2 has fewer slots than there are blocks.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    in = register_module("in", torch::nn::Linear(5, kWidth));
    list = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) { list->push_back(Block{kWidth}); }
    out = register_module("out", torch::nn::Linear(kWidth, 5));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = in(x);
    for (std::size_t i = 0; i < 8; ++i) {
      if (i == 5 && fails) { throw std::runtime_error{"no such batch"}; }
      y = list[i % 4]->as<BlockImpl>()->forward(y);
    }
    return out(y);
  }
  bool fails = false;
  torch::nn::Linear in{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::Linear out{nullptr};
};
using Net = std::shared_ptr<NetImpl>;

Net make_net() {
  return seeded(1, [] { return std::make_shared<NetImpl>(); });
}

// What a loop calls: libtorch alone, or a sharded model.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual Tensor operator()(const Tensor& x) = 0;
  virtual void backward(const Tensor& loss, bool retain_graph = false) = 0;
  virtual void discard() = 0;
  // Anything that reads parameters without training them.
  virtual void look(const Tensor& x) = 0;
  virtual NetImpl& net() = 0;
};

class Plain : public Trainer {
 public:
  Tensor operator()(const Tensor& x) override { return net_->forward(x); }
  void backward(const Tensor& loss, bool retain_graph) override { loss.backward({}, retain_graph); }
  void discard() override { net_->zero_grad(); }
  void look(const Tensor& /*x*/) override {}
  NetImpl& net() override { return *net_; }

 private:
  Net net_ = make_net();
};

class Ours : public Trainer {
 public:
  Ours(World& world, const shards::ShardOptions& options)
      : model_{shards::shard(make_net(), world, options)} {
    model_.optimize_with(SGD{.lr = 0.5F, .momentum = 0.0F});
  }
  Tensor operator()(const Tensor& x) override { return model_(x); }
  void backward(const Tensor& loss, bool retain_graph) override {
    model_.backward(loss, retain_graph);
  }
  void discard() override { model_.discard(); }
  void look(const Tensor& x) override {
    const double found = model_.evaluate([&] { return model_(x).sum().item<double>(); });
    const auto values = model_.state_dict(true);
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(found, model_(x).sum().item<double>());
    EXPECT_EQ(values.at("in.weight").sizes(), net().in->weight.sizes());
  }
  NetImpl& net() override { return model_.module(); }
  auto& model() { return model_; }

 private:
  shards::Sharded<NetImpl> model_;
};

using Data = std::function<Tensor(int)>;  // batch i of this step and rank

// The passes of one step.
struct Loop {
  std::string name;
  std::function<void(Trainer&, const Data&)> passes;
  int accumulate = 1;
};
void PrintTo(const Loop& loop, std::ostream* out) {
  *out << loop.name;
}

Tensor squared(const Tensor& y) {
  return y.pow(2).mean();
}

std::vector<Loop> loops() {
  std::vector<Loop> all;
  all.push_back({"TwoBackwards", [](Trainer& model, const Data& x) {
                   model.backward(squared(model(x(0))));
                   model.backward(model(x(1)).abs().mean());
                 }});
  all.push_back({"ForwardsThenBackwards", [](Trainer& model, const Data& x) {
                   const Tensor first = squared(model(x(0)));
                   const Tensor second = squared(model(x(1)) - 1);
                   model.backward(first);
                   model.backward(second);
                 }});
  all.push_back({"BackwardsInOppositeOrder", [](Trainer& model, const Data& x) {
                   const Tensor first = squared(model(x(0)));
                   const Tensor second = squared(model(x(1)) - 1);
                   model.backward(second);
                   model.backward(first);
                 }});
  all.push_back({"RetainedGraph", [](Trainer& model, const Data& x) {
                   const Tensor y = model(x(0));
                   model.backward(squared(y), /*retain_graph=*/true);
                   model.backward(y.abs().mean());
                 }});
  all.push_back({"GradientPenalty", [](Trainer& model, const Data& x) {
                   const Tensor input = x(0).clone().set_requires_grad(true);
                   const Tensor y = model(input);
                   const Tensor slope =
                       torch::autograd::grad({y.sum()}, {input}, {}, true, true).at(0);
                   model.backward(squared(y) + (slope.norm(2, {1}) - 1).pow(2).mean());
                 }});
  all.push_back({"PenaltyOverAllParameters", [](Trainer& model, const Data& x) {
                   Tensor loss = squared(model(x(0)));
                   for (const Tensor& parameter : model.net().parameters()) {
                     loss = loss + 0.01 * parameter.pow(2).sum();
                   }
                   model.backward(loss);
                 }});
  all.push_back({"PassesWithoutGradients", [](Trainer& model, const Data& x) {
                   const auto target = [&] {
                     const torch::NoGradGuard no_grad;
                     return model(x(1));
                   };
                   const auto looked = [&] {
                     const c10::InferenceMode inference;
                     return model(x(2)).sum().item<float>();
                   };
                   const Tensor before = target();
                   const Tensor y = model(x(0));
                   const Tensor loss = squared(y - before) + squared(y - target()) * looked();
                   model.backward(loss);
                   EXPECT_TRUE(std::isfinite(looked()));
                   model.backward(squared(model(x(2))));
                 }});
  all.push_back({"DroppedPasses", [](Trainer& model, const Data& x) {
                   EXPECT_TRUE(model(x(1)).requires_grad());
                   model.backward(squared(model(x(0))));
                   EXPECT_TRUE(model(x(2)).requires_grad());
                 }});
  all.push_back({"DiscardedGradients", [](Trainer& model, const Data& x) {
                   model.backward(model(x(1)).sum());
                   model.discard();
                   model.backward(squared(model(x(0))));
                   model.backward(squared(model(x(2))));
                 }});
  all.push_back({"ExceptionInAForward", [](Trainer& model, const Data& x) {
                   const Tensor loss = squared(model(x(0)));
                   model.net().fails = true;
                   EXPECT_THROW((void)model(x(1)), std::runtime_error);
                   model.net().fails = false;
                   model.backward(loss);
                 }});
  all.push_back({"LooksInTheMiddle", [](Trainer& model, const Data& x) {
                   model.look(x(2));
                   const Tensor loss = squared(model(x(0)));
                   model.look(x(2));
                   model.backward(loss);
                   model.look(x(2));
                   model.backward(squared(model(x(1))));
                   model.look(x(2));
                 }});
  all.push_back({"Accumulated",
                 [](Trainer& model, const Data& x) {
                   for (int i = 0; i < 4; ++i) { model.backward(squared(model(x(i)))); }
                 },
                 2});
  return all;
}

Data data_of(int rank, int step) {
  return [=](int i) {
    const std::uint64_t seed = 100 + static_cast<std::uint64_t>(100 * rank + 10 * step + i);
    return seeded(seed, [] { return torch::randn({4, 5}); });
  };
}

Tensors plain_gradients(const Loop& loop, int rank = 0) {
  Plain plain;
  loop.passes(plain, data_of(rank, 0));
  Tensors all;
  for (const auto& item : plain.net().named_parameters()) {
    all[item.key()] = item.value().grad() / loop.accumulate;
  }
  return all;
}

struct Outcome {
  Tensors gradients;  // of the first step
  Tensors weights;
  std::vector<double> losses;
};

Outcome outcome_of(const Loop& loop, shards::ShardOptions options, int ranks) {
  options.model.accumulate = loop.accumulate;
  Outcome outcome;
  run_ranks(ranks, [&](World& world) {
    Ours ours{world, options};
    Outcome mine;
    for (int step = 0; step < 2; ++step) {
      loop.passes(ours, data_of(world.rank(), step));
      if (step == 0) { mine.gradients = ours.model().export_gradients(true); }
      ours.model().step();
      mine.losses.push_back(ours.model().report().loss);
    }
    mine.weights = ours.model().state_dict(true);
    if (world.rank() == 0) { outcome = std::move(mine); }
  });
  return outcome;
}

void expect_same(const Tensors& found, const Tensors& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, value] : wanted) {
    EXPECT_TRUE(torch::equal(found.at(name), value))
        << name << " differs by " << (found.at(name) - value).abs().max().item<float>();
  }
}

class TorchLoops : public ::testing::TestWithParam<Loop> {};

TEST_P(TorchLoops, HaveTheBitsOfLibtorchOnOneRankAndOfDdpOnSeveral) {
  const Tensors plain = plain_gradients(GetParam());
  const Outcome ddp = outcome_of(GetParam(), {.model = {.strategy = Strategy::ddp}}, 2);
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3, Strategy::hybrid}) {
    SCOPED_TRACE(tessera::to_string(strategy));
    shards::ShardOptions options{.model = {.strategy = strategy}};
    if (strategy != Strategy::hybrid) {
      expect_same(outcome_of(GetParam(), options, 1).gradients, plain);
    } else {
      options.model.shard_group = 2;
    }
    const Outcome found = outcome_of(GetParam(), options, 2);
    expect_same(found.gradients, ddp.gradients);
    expect_same(found.weights, ddp.weights);
    EXPECT_EQ(found.losses, ddp.losses);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchLoops, ::testing::ValuesIn(loops()),
                         [](const auto& test) { return test.param.name; });

// A root unit has one slot for what comes after its reduction.
TEST(TorchLoops, ARootUnitTakesAnyNumberOfBackwardPasses) {
  const Loop loop{"ThreeBackwards", [](Trainer& model, const Data& x) {
                    for (int i = 0; i < 3; ++i) { model.backward(squared(model(x(i)))); }
                  }};
  const auto found = [&](Strategy strategy) {
    return outcome_of(loop,
                      {.model = {.strategy = strategy, .keep_whole = tessera::KeepWhole::never},
                       .units = shards::units_named({"blocks.*"})},
                      2);
  };
  const Outcome wanted = found(Strategy::zero3);
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    SCOPED_TRACE(tessera::to_string(strategy));
    const Outcome one = found(strategy);
    expect_same(one.gradients, wanted.gradients);
    expect_same(one.weights, wanted.weights);
  }
}

// Losses that are sums over a rank's samples give the gradient of the whole sum.
TEST(TorchLossReduction, SumAddsGradientsAndLossesOverRanks) {
  const Loop loop{.name = "Sum", .passes = [](Trainer& model, const Data& x) {
                    model.backward(model(x(0)).pow(2).sum());
                  }};
  Tensors wanted = plain_gradients(loop, 0);
  for (auto& [name, value] : plain_gradients(loop, 1)) { wanted.at(name) += value; }
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    const shards::ShardOptions mean{.model = {.strategy = strategy}};
    shards::ShardOptions sum = mean;
    sum.loss_reduction = shards::LossReduction::sum;
    const Outcome found = outcome_of(loop, sum, 2);
    expect_same(found.gradients, wanted);
    EXPECT_EQ(found.losses.at(0), 2 * outcome_of(loop, mean, 2).losses.at(0));
  }
}

// One rank counts one row, the other all but one: together half of what the losses are divided by.
// Means over those that count are then the sums that LossReduction::sum makes.
TEST(TorchLossReduction, CountsOfAllRanksDivideTheLoss) {
  struct Step {
    Tensors weights;
    double loss = 0.0;
  };
  const auto made = [](bool counts, Strategy strategy) {
    Step step;
    run_ranks(2, [&](World& world) {
      shards::ShardOptions options{.model = {.strategy = strategy}};
      if (!counts) { options.loss_reduction = shards::LossReduction::sum; }
      Ours ours{world, options};
      const Tensor y = ours(data_of(world.rank(), 0)(0));
      const std::int64_t rows = world.rank() == 0 ? 1 : y.size(0) - 1;
      const auto all = static_cast<double>(y.size(0));
      const Tensor counted = torch::full({1}, static_cast<double>(rows), torch::kDouble);
      ours.backward(y.slice(0, 0, rows).pow(2).sum() / all, false);
      if (counts) {
        ours.model().step({counted.data_ptr<double>(), all});
      } else {
        ours.model().step();
      }
      const auto report = ours.model().report();
      const Tensors weights = ours.model().state_dict();
      if (world.rank() == 0) { step = {weights, report.loss}; }
    });
    return step;
  };
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    const Step counted = made(true, strategy);
    const Step summed = made(false, strategy);
    EXPECT_EQ(counted.loss, summed.loss);
    expect_same(counted.weights, summed.weights);
  }
  run_ranks(1, [](World& world) {
    Ours ours{world, {.loss_reduction = shards::LossReduction::sum}};
    ours.backward(squared(ours(data_of(0, 0)(0))), false);
    EXPECT_THROW(ours.model().step({nullptr, 8.0}), ContractError);
    ours.model().step();
  });
}

// Ranks that drop different gradients are told which rank differs.
TEST(TorchLoops, RanksThatDiscardDifferentGradientsAreTold) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    try {
      run_ranks(2, [&](World& world) {
        Ours ours{world, {.model = {.strategy = strategy}}};
        const Data x = data_of(world.rank(), 0);
        ours.backward(squared(ours(x(0))), false);
        if (world.rank() == 1) { ours.discard(); }
        ours.backward(squared(ours(x(1))), false);
        ours.model().step();
      });
      ADD_FAILURE() << "not noticed";
    } catch (const CommError& error) {
      EXPECT_THAT(std::string{error.what()}, HasSubstr("rank 1"));
    }
  }
}

// What cannot be done with the gradients of a step under way says what to call.
TEST(TorchLoops, AStepUnderWayNamesDiscard) {
  run_ranks(1, [&](World& world) {
    Ours ours{world, {.model = {.strategy = Strategy::zero3, .accumulate = 2}}};
    const Data x = data_of(0, 0);
    ours.backward(squared(ours(x(0))), false);
    const auto folder = std::filesystem::temp_directory_path() / "tessera_torch_loops";
    std::filesystem::remove_all(folder);
    const auto saved = ours.model().save(folder);
    const auto message = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const ContractError& error) { return std::string{error.what()}; }
      return std::string{};
    };
    EXPECT_THAT(message([&] { ours.model().step(); }), HasSubstr("discard()"));
    EXPECT_THAT(message([&] { ours.model().load(saved); }), HasSubstr("discard"));
    ours.discard();
    ours.model().load(saved);
    std::filesystem::remove_all(folder);
  });
}

}  // namespace
}  // namespace torch_test::loops_test

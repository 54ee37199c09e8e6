// Use of sharded modules: shapes of modules and passes from PyTorch's test suites for DDP and FSDP,
// and mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "modules.hpp"
#include "support/rounding.hpp"
#include "tessera/tessera.hpp"
#include "torch/module_units.hpp"

namespace torch_test {
namespace {

using tessera::AdamW;
using tessera::CommError;
using tessera::ConfigError;
using tessera::ContractError;
using tessera::DelayInjection;
using tessera::KeepWhole;
using tessera::ModelOptions;
using tessera::ParameterInfo;
using tessera::run_ranks;
using tessera::SGD;
using tessera::SlotPoison;
using tessera::StateTensor;
using tessera::Strategy;
using tessera::World;
using tessera::WorldOptions;
namespace shards = tessera::torch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr std::int64_t kWidth = 6;

// A layer that shares its weight with another one.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const Tensor& of) : weight{register_parameter("weight", of)} {}
  Tensor weight;
};
TORCH_MODULE(Tied);

// A module with the forward pass of a test case.
struct NetImpl : torch::nn::Module {
  using Pass = std::function<Tensor(NetImpl&, const Tensor&)>;

  NetImpl(int blocks, Pass pass_) : pass{std::move(pass_)} {
    in = register_module("in", torch::nn::Linear(5, kWidth));
    list = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < blocks; ++i) { list->push_back(Block{kWidth}); }
    out = register_module("out", torch::nn::Linear(kWidth, 5));
  }
  Tensor forward(const Tensor& x) { return pass(*this, x); }
  BlockImpl& block(std::size_t i) { return *list[i]->as<BlockImpl>(); }

  Pass pass;
  Tensor kept;
  torch::nn::Linear in{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::Linear out{nullptr};
};
using Net = std::shared_ptr<NetImpl>;

Tensor chain(NetImpl& net, const Tensor& x) {
  Tensor y = net.in(x);
  for (std::size_t i = 0; i < net.list->size(); ++i) { y = net.block(i).forward(y); }
  return net.out(y);
}

using Call = std::function<Tensor(const Tensor&)>;

// One way to build and run a module.
struct Case {
  std::string name;
  std::function<Net()> build;
  // The loss of a micro-batch, given a call of the module.
  std::function<Tensor(const Call&, NetImpl&, const Tensor& x)> loss =
      [](const Call& net, NetImpl&, const Tensor& x) { return (net(x) - x).pow(2).mean(); };
  shards::UnitPredicate units = {};
};
void PrintTo(const Case& test, std::ostream* out) {
  *out << test.name;
}

Net net_of(int blocks, NetImpl::Pass pass = chain) {
  return std::make_shared<NetImpl>(blocks, std::move(pass));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({.name = "Chain", .build = [] { return net_of(4); }});
  all.push_back({.name = "OneUnit",
                 .build = [] { return net_of(2); },
                 .units = [](auto& name, auto&) { return name == "blocks"; }});
  all.push_back({.name = "NestedUnits",
                 .build = [] { return net_of(3); },
                 .units = shards::units_named({"blocks.*", "blocks.*.down"})});
  all.push_back({.name = "EveryLayer",
                 .build = [] { return net_of(2); },
                 .units = shards::units_named({"in", "out", "blocks.*.*"})});
  all.push_back({.name = "FrozenBlocksTrainedHead", .build = [] {
                   Net net = net_of(4);
                   for (auto& parameter : net->parameters()) { parameter.set_requires_grad(false); }
                   for (auto& parameter : net->out->parameters()) {
                     parameter.set_requires_grad(true);
                   }
                   return net;
                 }});
  all.push_back({.name = "FrozenWeightsTrainedBiases", .build = [] {
                   Net net = net_of(4);
                   for (auto& parameter : net->parameters()) {
                     parameter.set_requires_grad(parameter.dim() == 1);
                   }
                   return net;
                 }});
  all.push_back({.name = "FrozenBlockBetween", .build = [] {
                   Net net = net_of(3);
                   for (auto& parameter : net->block(1).parameters()) {
                     parameter.set_requires_grad(false);
                   }
                   return net;
                 }});
  all.push_back({.name = "SharedWithinRoot", .build = [] {
                   Net net = net_of(2, [](NetImpl& n, const Tensor& x) {
                     Tensor y = n.in(x);
                     for (std::size_t i = 0; i < 2; ++i) { y = n.block(i).forward(y); }
                     return torch::matmul(y, n.in->weight);
                   });
                   return net;
                 }});
  all.push_back({.name = "TensorSharedByBlocks", .build = [] {
                   Net net = net_of(3, [](NetImpl& n, const Tensor& x) {
                     Tensor y = n.in(x);
                     for (std::size_t i = 0; i < 3; ++i) { y = n.block(i).forward(y); }
                     const Tensor& shared = n.list[3]->as<TiedImpl>()->weight;
                     return n.out(y + torch::matmul(y, shared.t()).slice(-1, 0, kWidth));
                   });
                   net->list->push_back(Tied{net->block(0).up->weight});
                   return net;
                 }});
  all.push_back({.name = "BlockRegisteredTwice", .build = [] {
                   Net net = net_of(2);
                   net->list->push_back(net->list->ptr(0));
                   return net;
                 }});
  all.push_back({.name = "UnusedParameter", .build = [] {
                   Net net = net_of(3, [](NetImpl& n, const Tensor& x) {
                     Tensor y = n.in(x);
                     y = n.block(0).forward(y);
                     // Skips `down`.
                     y = y + n.block(1).up(n.block(1).norm(y)).slice(-1, 0, kWidth);
                     return n.out(n.block(2).forward(y));
                   });
                   return net;
                 }});
  all.push_back({.name = "UnusedBlock", .build = [] {
                   return net_of(4, [](NetImpl& n, const Tensor& x) {
                     return n.out(n.block(3).forward(n.block(0).forward(n.in(x))));
                   });
                 }});
  all.push_back({.name = "UsedWithoutGradient", .build = [] {
                   return net_of(3, [](NetImpl& n, const Tensor& x) {
                     Tensor y = n.block(0).forward(n.in(x));
                     Tensor teacher;
                     {
                       const torch::NoGradGuard no_grad;
                       teacher = n.block(1).forward(y);
                     }
                     return n.out(n.block(2).forward(y) + 0.1 * teacher);
                   });
                 }});
  all.push_back({.name = "BlockUsedTwice", .build = [] {
                   return net_of(2, [](NetImpl& n, const Tensor& x) {
                     Tensor y = n.in(x);
                     for (int round = 0; round < 2; ++round) {
                       y = n.block(1).forward(n.block(0).forward(y));
                     }
                     return n.out(y);
                   });
                 }});
  all.push_back({.name = "ManyBlocksUsedTwice", .build = [] {
                   return net_of(4, [](NetImpl& n, const Tensor& x) {
                     Tensor y = n.in(x);
                     for (std::size_t i = 0; i < 8; ++i) { y = n.block(i % 4).forward(y); }
                     return n.out(y);
                   });
                 }});
  all.push_back({.name = "OperatorOfTwoUnits", .build = [] {
                   return net_of(3, [](NetImpl& n, const Tensor& x) {
                     const Tensor y = n.in(x);
                     const Tensor both = torch::cat({n.block(0).up->weight, n.block(1).up->weight});
                     const Tensor z = torch::matmul(y, both.t()).slice(-1, 3, 3 + kWidth);
                     return n.out(n.block(2).forward(z));
                   });
                 }});
  all.push_back({.name = "TwoTowers", .build = [] {
                   return net_of(4, [](NetImpl& n, const Tensor& x) {
                     const Tensor y = n.in(x);
                     const Tensor left = n.block(1).forward(n.block(0).forward(y));
                     const Tensor right = n.block(3).forward(n.block(2).forward(y));
                     return n.out(left * right);
                   });
                 }});
  all.push_back({.name = "SeveralForwards",
                 .build = [] { return net_of(2); },
                 .loss =
                     [](const Call& net, NetImpl&, const Tensor& x) {
                       return (net(x) - net(x * 0.5)).pow(2).mean() + net(x).pow(2).mean();
                     }});
  all.push_back({.name = "PenaltyAfterTheForward",
                 .build = [] { return net_of(2); },
                 .loss =
                     [](const Call& net, NetImpl& module, const Tensor& x) {
                       const Tensor error = net(x).pow(2).mean();
                       return error + 0.1 * module.block(0).up->weight.pow(2).sum();
                     }});
  return all;
}

// Gradients of one step, by name, and the weights after it.
struct Outcome {
  std::map<std::string, std::vector<float>> gradients;
  std::map<std::string, std::vector<float>> weights;
};

Tensor batch(int step) {
  return seeded(100 + static_cast<std::uint64_t>(step), [] { return torch::randn({8, 5}); });
}

constexpr int kSteps = 2;
constexpr float kRate = 0.5F;

// The parameters by name, each once.
std::vector<std::pair<std::string, Tensor>> parameters_of(const NetImpl& net) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& item : net.named_parameters()) {
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& known) { return known.second.is_same(item.value()); })) {
      all.emplace_back(item.key(), item.value());
    }
  }
  return all;
}

// libtorch alone, over the whole batch, with plain gradient descent.
Outcome alone(const Case& test) {
  const Net net = seeded(1, test.build);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor loss =
        test.loss([&](const Tensor& x) { return net->forward(x); }, *net, batch(step));
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (auto& [name, parameter] : parameters_of(*net)) {
      if (!parameter.requires_grad()) { continue; }
      const Tensor grad =
          parameter.grad().defined() ? parameter.grad() : torch::zeros_like(parameter);
      if (step == 0) {
        outcome.gradients[name] = {grad.contiguous().data_ptr<float>(),
                                   grad.contiguous().data_ptr<float>() + grad.numel()};
      }
      parameter.sub_(grad * kRate);
    }
    net->zero_grad();
  }
  for (const auto& [name, parameter] : parameters_of(*net)) {
    const Tensor value = parameter.contiguous();
    outcome.weights[name] = {value.data_ptr<float>(), value.data_ptr<float>() + value.numel()};
  }
  return outcome;
}

Outcome sharded(const Case& test, ModelOptions options, int ranks,
                WorldOptions world_options = {}) {
  Outcome outcome;
  run_ranks(
      ranks,
      [&](World& world) {
        const Net net = seeded(1, test.build);
        auto model = shards::shard(net, world, {.model = options, .units = test.units});
        model.optimize_with(SGD{.lr = kRate, .momentum = 0.0F});
        const auto note = [&](StateTensor what, std::map<std::string, std::vector<float>>& into) {
          model.model().export_state(
              what, [&](const ParameterInfo& info, std::span<const float> values) {
                if (world.rank() == 0) {
                  into[shards::ShardedModule::name_of(info)] = {values.begin(), values.end()};
                }
              });
        };
        for (int step = 0; step < kSteps; ++step) {
          const std::vector<Tensor> parts =
              batch(step).chunk(static_cast<std::int64_t>(world.size()) * options.accumulate);
          for (int i = 0; i < options.accumulate; ++i) {
            const Tensor& mine =
                parts[static_cast<std::size_t>(world.rank() * options.accumulate + i)];
            model.backward(test.loss([&](const Tensor& x) { return model(x); }, *net, mine));
          }
          if (step == 0) { note(StateTensor::gradients, outcome.gradients); }
          model.step();
        }
        note(StateTensor::parameters, outcome.weights);
      },
      world_options);
  return outcome;
}

/// Two steps through at most 12 products of at most 12 terms; a sum over 8 rows.
const double kWithin =
    tessera::test::chain_difference(kSteps * tessera::test::layers_roundings(12, 2 * kWidth, 8));

void expect_near(const std::map<std::string, std::vector<float>>& found,
                 const std::map<std::string, std::vector<float>>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, values] : wanted) {
    ASSERT_TRUE(found.contains(name)) << name;
    const std::vector<float>& mine = found.at(name);
    ASSERT_EQ(mine.size(), values.size()) << name;
    double error = 0.0;
    double norm = 1e-3;  // of gradients that are 0 but for rounding
    for (std::size_t i = 0; i < values.size(); ++i) {
      error = std::max(error, std::abs(static_cast<double>(mine[i]) - values[i]));
      norm = std::max(norm, std::abs(static_cast<double>(values[i])));
    }
    EXPECT_LE(error, kWithin * norm) << name;
  }
}

class TorchPasses : public ::testing::TestWithParam<Case> {};

TEST_P(TorchPasses, GradientsEqualThePlainModules) {
  const Outcome wanted = alone(GetParam());
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    for (const auto& [ranks, keep] :
         {std::pair{1, KeepWhole::automatic}, {2, KeepWhole::automatic}, {2, KeepWhole::never}}) {
      if (keep == KeepWhole::never && strategy < Strategy::zero2) { continue; }  // as automatic
      for (const int accumulate : {1, 2}) {
        SCOPED_TRACE(std::string{tessera::to_string(strategy)} + ", ranks " +
                     std::to_string(ranks) + ", micro-batches " + std::to_string(accumulate) +
                     ", whole " + std::string{tessera::to_string(keep)});
        const Outcome found =
            sharded(GetParam(),
                    {.strategy = strategy, .accumulate = accumulate, .keep_whole = keep}, ranks);
        expect_near(found.gradients, wanted.gradients);
        expect_near(found.weights, wanted.weights);
      }
    }
  }
}

// Delays, and poison in released slots, change nothing.
TEST_P(TorchPasses, ParametersAreReadOnlyWhileGathered) {
  const ModelOptions options{.strategy = Strategy::zero3, .keep_whole = KeepWhole::never};
  const Outcome plain = sharded(GetParam(), options, 2);
  const Outcome late =
      sharded(GetParam(), options, 2,
              {.testing = {.poison = SlotPoison::nan, .delays = DelayInjection{.seed = 3}}});
  EXPECT_EQ(late.gradients, plain.gradients);
  EXPECT_EQ(late.weights, plain.weights);
}

INSTANTIATE_TEST_SUITE_P(Modules, TorchPasses, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

// The module is divided by the names of its children.
TEST(TorchUnits, OwnTheirParametersAndTheRootOwnsSharedOnes) {
  const auto names = [](const Net& net, const shards::UnitPredicate& is_unit) {
    std::vector<std::string> all;
    for (const shards::ModuleUnit& unit : shards::units_of(*net, is_unit)) {
      std::string text = unit.name + (unit.contains_units ? "+" : "") + ":";
      for (const auto& parameter : unit.parameters) {
        text += " " + parameter.name;
        for (std::size_t i = 1; i < parameter.names.size(); ++i) {
          text += "=" + parameter.names[i];
        }
      }
      all.push_back(text);
    }
    return all;
  };
  const std::string block = "norm.weight norm.bias up.weight up.bias down.weight down.bias";
  EXPECT_THAT(names(net_of(2), {}), ElementsAre("in: weight bias", "blocks.0: " + block,
                                                "blocks.1: " + block, "out: weight bias"));
  EXPECT_THAT(names(net_of(1), shards::units_named({"blocks.*", "blocks.*.down", "out"})),
              ElementsAre("(root)+: in.weight in.bias",
                          "blocks.0+: norm.weight norm.bias up.weight up.bias",
                          "blocks.0.down: weight bias", "out: weight bias"));
  const Net tied = net_of(1);
  tied->list->push_back(Tied{tied->block(0).up->weight});
  tied->list->push_back(tied->list->ptr(0));
  EXPECT_THAT(names(tied, shards::units_named({"blocks.?"})),
              ElementsAre("(root)+: in.weight in.bias "
                          "blocks.0.up.weight=blocks.1.weight=blocks.2.up.weight out.weight "
                          "out.bias",
                          "blocks.0: norm.weight=blocks.2.norm.weight norm.bias=blocks.2.norm.bias "
                          "up.bias=blocks.2.up.bias down.weight=blocks.2.down.weight "
                          "down.bias=blocks.2.down.bias"));
}

struct Mistake {
  std::string name;
  std::string says;
  // Returns rank 0's exception from a sharded module after one step.
  std::function<void(shards::Sharded<NetImpl>&, NetImpl&, const Tensor& x)> make;
  std::vector<Strategy> under = {Strategy::ddp, Strategy::zero3};
};
void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

std::vector<Mistake> mistakes() {
  using Model = shards::Sharded<NetImpl>;
  const auto loss_of = [](Model& model, const Tensor& x) { return model(x).pow(2).mean(); };
  return {
      {"ReadOutside",
       "aten::sum reads parameter \"in.weight\" of a sharded module outside its "
       "passes; call the ShardedModule (model(x) or model.forward)",
       [](Model&, NetImpl& net, const Tensor&) { net.in->weight.sum(); }},
      {"ForwardOfTheModuleItself", "reads parameter \"in.weight\" of a sharded module outside",
       [](Model&, NetImpl& net, const Tensor& x) { net.forward(x); }},
      {"Clone", "outside its passes",
       [](Model&, NetImpl& net, const Tensor&) { net.block(0).up->weight.clone(); }},
      {"WriteInAForward",
       "aten::mul_ writes parameter \"blocks.0.up.weight\" of a sharded module, and the values "
       "would be lost",
       [](Model& model, NetImpl& net, const Tensor&) {
         model.forward([&] {
           const torch::NoGradGuard no_grad;
           net.block(0).up->weight.mul_(0.5);
         });
       }},
      {"BackwardOfTheLossItself", "call model.backward(loss) instead of loss.backward()",
       [=](Model& model, NetImpl&, const Tensor& x) { loss_of(model, x).backward(); }},
      {"BackwardTwice", "backward through the graph a second time",
       [=](Model& model, NetImpl&, const Tensor& x) {
         const Tensor loss = loss_of(model, x);
         model.backward(loss);
         model.backward(loss);
       }},
      {"BackwardWithinTheForward", "backward is called within a forward pass",
       [=](Model& model, NetImpl& net, const Tensor& x) {
         model.forward([&] { model.backward(net.forward(x).mean()); });
       }},
      {"ForwardOnly", "step() is called after 0 of 1 backward passes",
       [=](Model& model, NetImpl&, const Tensor& x) {
         loss_of(model, x);
         model.step();
       }},
      {"LossOfManyElements", "backward needs a loss of one element, not 40",
       [](Model& model, NetImpl&, const Tensor& x) { model.backward(model(x)); }},
      {"LossWithoutGradient", "the loss needs no gradient",
       [=](Model& model, NetImpl&, const Tensor& x) {
         model.backward(loss_of(model, x).detach());
       }},
      {"StaleGraph", "modified by an inplace operation",
       [=](Model& model, NetImpl&, const Tensor& x) {
         const Tensor old = loss_of(model, x);
         model.backward(loss_of(model, x));
         model.step();
         loss_of(model, x);
         model.backward(old);
       }},
      {"GradientKept", "uses the gradient of \"in.weight\", of which each rank keeps a part",
       [=](Model& model, NetImpl& net, const Tensor& x) {
         Tensor kept;
         const auto hook = net.in->weight.register_hook(
             [&](const Tensor& grad) -> Tensor { return kept = net.in->weight.grad(), grad; });
         model.backward(loss_of(model, x));
         net.in->weight.remove_hook(hook);
         kept.sum();
       }},
      {"TrainedAfterItWasFrozen", "parameter \"out.bias\" was frozen when the module was sharded",
       [](Model& model, NetImpl&, const Tensor& x) {
         const Net other = seeded(2, [] { return net_of(1); });
         other->out->bias.set_requires_grad(false);
         auto frozen = shards::shard(other, model.model().world());
         other->out->bias.set_requires_grad(true);
         frozen(x);
       }},
      {"ConvertedInAPass", "parameter \"in.weight\" was given other memory",
       [](Model& model, NetImpl& net, const Tensor& x) {
         model.forward([&] { net.in->to(torch::kBFloat16); });
         model(x);
       }},
      {"ShardedAgainAfterItsEnd", "parameter \"in.weight\" has no values",
       [](Model& model, NetImpl&, const Tensor&) {
         const Net other = seeded(2, [] { return net_of(1); });
         { const auto ended = shards::shard(other, model.model().world()); }
         static_cast<void>(shards::shard(other, model.model().world()));
       }},
      {"BackwardOfAnotherModule",
       "the backward pass of another sharded module reaches parameter \"out.bias\"",
       [](Model& model, NetImpl&, const Tensor& x) {
         const Net net = seeded(2, [] { return net_of(1); });
         auto critic = shards::shard(net, model.model().world());
         model.backward(critic(model(x)).pow(2).mean());
       }},
      {"UnitsAtOnce",
       "an operator uses 3 units at once: set `prefetch` (ShardOptions::model) to at least 2",
       [](Model& model, NetImpl& net, const Tensor&) {
         model.forward([&] {
           torch::cat({net.block(0).up->weight, net.block(1).up->weight, net.block(2).up->weight});
         });
       },
       {Strategy::zero3}},
      {"ShardedTwice", "already belongs to a sharded module",
       [](Model& model, NetImpl& net, const Tensor&) {
         static_cast<void>(shards::shard(net.shared_from_this(), model.model().world()));
       }},
  };
}

class TorchMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(TorchMistakes, AreRefusedByName) {
  for (const Strategy strategy : GetParam().under) {
    run_ranks(2, [&](World& world) {
      const Net net = seeded(1, [] { return net_of(3); });
      auto model = shards::shard(net, world,
                                 {.model = {.strategy = strategy, .keep_whole = KeepWhole::never}});
      model.optimize_with(AdamW{});
      model.backward(model(batch(0)).pow(2).mean());
      model.step();
      try {
        GetParam().make(model, *net, batch(1));
        ADD_FAILURE() << "nothing was thrown under " << tessera::to_string(strategy);
      } catch (const std::exception& error) {
        EXPECT_THAT(std::string{error.what()}, HasSubstr(GetParam().says));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchMistakes, ::testing::ValuesIn(mistakes()),
                         [](const auto& test) { return test.param.name; });

// A refused module is unchanged: its values, the addresses of its gradients, and its graphs.
TEST(TorchShard, RefusesModulesByNameAndLeavesThemTheirValues) {
  struct Refused {
    std::string says;
    std::function<Net()> build;
    shards::ShardOptions options = {};
    int other_on_rank = -1;
    std::optional<std::size_t> budget = {};
  };
  std::vector<Refused> all;
  all.push_back({"parameter \"blocks.0.up.weight\" has elements of type Double", [] {
                   Net net = net_of(2);
                   net->block(0).up->to(torch::kDouble);
                   return net;
                 }});
  all.push_back({"parameters \"in.weight\" and \"blocks.1.weight\" are views of one tensor", [] {
                   Net net = net_of(1);
                   net->list->push_back(Tied{net->in->weight.detach().slice(0, 1, 3)});
                   return net;
                 }});
  all.push_back({"parameter \"in.weight\" shares its memory with another tensor", [] {
                   Net net = net_of(1);
                   net->kept = net->in->weight.detach();
                   return net;
                 }});
  all.push_back({"it is not a leaf", [] {
                   Net net = net_of(1);
                   net->in->weight.requires_grad_();
                   net->list->push_back(Tied{net->in->weight * 2});
                   return net;
                 }});
  all.push_back({"ShardOptions::units matches no module",
                 [] { return net_of(1); },
                 {.units = shards::units_named({"block.*"})}});
  all.push_back(
      {"ranks shard different modules: rank 0 has \"blocks.2: blocks.2.norm.weight [6] "
       "Float\", rank 1 has \"out: out.weight [5, 6] Float\"",
       [] { return net_of(3); },
       {},
       1});
  all.push_back({"budget", [] { return net_of(2); }, {}, -1, 1024});
  for (const Refused& refused : all) {
    try {
      const auto body = [&](World& world) {
        const Net net = seeded(
            1, [&] { return world.rank() == refused.other_on_rank ? net_of(2) : refused.build(); });
        std::vector<Tensor> before;
        for (const Tensor& tensor : net->parameters()) { before.push_back(tensor.clone()); }
        try {
          static_cast<void>(shards::shard(net, world, refused.options));
        } catch (const tessera::Error&) {
          const std::vector<Tensor> after = net->parameters();
          for (std::size_t i = 0; i < after.size(); ++i) {
            EXPECT_TRUE(after[i].device().is_cpu() && torch::equal(after[i], before[i]))
                << refused.says;
          }
          throw;
        }
      };
      run_ranks(2, body, {.budget_bytes = refused.budget});
      ADD_FAILURE() << "nothing was thrown: " << refused.says;
    } catch (const tessera::Error& error) {
      EXPECT_THAT(std::string{error.what()}, HasSubstr(refused.says));
    }
  }
}

// An exception in a forward pass does not affect the next pass.
TEST(TorchPasses, CanBeMadeAgainAfterAnException) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    std::vector<double> norms;
    for (const bool fails : {false, true}) {
      run_ranks(2, [&](World& world) {
        bool fail_now = false;
        const Net net = seeded(1, [&] {
          return net_of(3, [&](NetImpl& n, const Tensor& x) {
            Tensor y = n.block(0).forward(n.in(x));
            if (fail_now) { throw std::runtime_error{"no such batch"}; }
            return n.out(n.block(2).forward(n.block(1).forward(y)));
          });
        });
        auto model = shards::shard(net, world, {.model = {.strategy = strategy}});
        model.optimize_with(AdamW{});
        for (int step = 0; step < 3; ++step) {
          if (fails && step == 1) {
            fail_now = true;
            EXPECT_THROW(model(batch(step)), std::runtime_error);
            fail_now = false;
          }
          model.backward(model(batch(step)).pow(2).mean());
          model.step();
        }
        if (world.rank() == 0) { norms.push_back(model.report().grad_norm); }
      });
    }
    EXPECT_EQ(norms.at(0), norms.at(1)) << tessera::to_string(strategy);
  }
}

// A view that outlives a sharded module reads NaN, never memory of others.
TEST(TorchShard, AViewKeptBeyondItsScopeReadsNaN) {
  run_ranks(2, [&](World& world) {
    Tensor kept;
    {
      const Net net = seeded(1, [] { return net_of(2); });
      auto model = shards::shard(net, world, {.model = {.strategy = Strategy::zero3}});
      model.forward([&] { kept = net->block(0).up->weight.detach().t(); });
    }
    EXPECT_TRUE(kept.isnan().all().item<bool>());
  });
}

// A loss through two sharded modules trains only the module whose backward runs, if the other is
// frozen. A parameter without elements is included.
TEST(TorchPasses, TwoModulesOfARankTrainAlternately) {
  const auto frozen = [](const Net& net, bool is) {
    for (Tensor& parameter : net->parameters()) { parameter.requires_grad_(!is); }
  };
  const auto loss_of = [](auto& first, auto& second, const Tensor& x) {
    return second(first(x)).pow(2).mean();
  };
  const auto build = [] {
    Net net = net_of(2, [](NetImpl& n, const Tensor& x) {
      const Tensor y = n.block(1).forward(n.block(0).forward(n.in(x)));
      return n.out(y) + n.list[2]->as<TiedImpl>()->weight.sum();
    });
    net->list->push_back(Tied{torch::zeros({0, 3})});
    return net;
  };
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    run_ranks(2, [&](World& world) {
      std::vector<Net> nets;
      std::vector<Net> plain;
      for (const std::uint64_t seed : {1, 2}) {
        nets.push_back(seeded(seed, build));
        plain.push_back(seeded(seed, build));
      }
      const shards::ShardOptions options{.model = {.strategy = strategy}};
      auto first = shards::shard(nets[0], world, options);
      auto second = shards::shard(nets[1], world, options);
      const SGD sgd{.lr = 0.1F, .momentum = 0.0F, .weight_decay = 0.0F};
      first.optimize_with(sgd);
      second.optimize_with(sgd);
      for (int step = 0; step < 4; ++step) {
        const std::size_t trained = static_cast<std::size_t>(step % 2);
        frozen(nets[1 - trained], true);
        auto& model = trained == 0 ? first : second;
        model.backward(loss_of(first, second, batch(step)));
        model.step();
        frozen(nets[1 - trained], false);

        plain[trained]->zero_grad();
        const auto call = [&](std::size_t i) {
          return [&plain, i](const Tensor& x) { return plain[i]->forward(x); };
        };
        auto f = call(0);
        auto g = call(1);
        loss_of(f, g, batch(step)).backward();
        const torch::NoGradGuard no_grad;
        for (Tensor& parameter : plain[trained]->parameters()) {
          if (parameter.grad().defined()) { parameter.sub_(parameter.grad() * 0.1); }
        }
      }
      // The module that was only read has begun a micro-batch; its own step ends it.
      frozen(nets[0], true);
      second.backward(loss_of(first, second, batch(0)) * 0);
      second.step();
      const auto weights = second.state_dict(true);
      for (const auto& item : plain[1]->named_parameters()) {
        EXPECT_TRUE(torch::allclose(weights.at(item.key()), item.value(), kWithin, kWithin))
            << item.key();
      }
    });
  }
}

// As PyTorch's optimizers skip a parameter without a gradient: neither moments nor decay move it,
// and its state goes on where it stopped.
TEST(TorchPasses, AParameterFrozenForSomeStepsKeepsItsValueAndState) {
  struct Course {
    std::vector<int> steps;
    std::vector<int> frozen;  // steps in which block 1 is frozen
    bool in_parts = false;    // only the second of a step's two backward passes finds it frozen
  };
  const auto weights_after = [](Strategy strategy, const Course& course) {
    std::map<std::string, Tensor> weights;
    run_ranks(2, [&](World& world) {
      // Each block computes alone, so that its gradients do not depend on the others' weights.
      const Net net = seeded(1, [] {
        return net_of(3, [](NetImpl& n, const Tensor& x) {
          const Tensor y = torch::cat({x, x.slice(1, 0, 1)}, 1);
          Tensor sum = n.in(x).sum() + n.out(y).sum();
          for (std::size_t i = 0; i < 3; ++i) { sum = sum + n.block(i).forward(y).pow(2).sum(); }
          return sum;
        });
      });
      auto model = shards::shard(net, world, {.model = {.strategy = strategy, .accumulate = 2}});
      model.optimize_with(SGD{.lr = 0.01F, .weight_decay = 0.1F}, {.clip_norm = 0.0F});
      for (const int step : course.steps) {
        const bool freezes = std::ranges::find(course.frozen, step) != course.frozen.end();
        for (int micro = 0; micro < 2; ++micro) {
          for (Tensor& parameter : net->block(1).parameters()) {
            parameter.set_requires_grad(!freezes || (course.in_parts && micro == 0));
          }
          model.backward(model(batch(step)));
        }
        model.step();
      }
      const auto found = model.state_dict();
      if (world.rank() == 0) { weights = found; }
    });
    return weights;
  };
  const auto same = [](const Tensor& a, const Tensor& b) { return torch::equal(a, b); };
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    const auto some = weights_after(strategy, {{0, 1, 2, 3, 4}, {1, 2}});
    const auto never = weights_after(strategy, {{0, 1, 2, 3, 4}, {}});
    const auto shorter = weights_after(strategy, {{0, 3, 4}, {}});
    const auto once = weights_after(strategy, {{0, 1, 2, 3, 4}, {1}});
    const auto in_parts = weights_after(strategy, {{0, 1, 2, 3, 4}, {1}, /*in_parts=*/true});
    for (const auto& [name, value] : some) {
      const bool is_frozen = name.starts_with("blocks.1.");
      EXPECT_TRUE(same(value, (is_frozen ? shorter : never).at(name))) << name;
      EXPECT_FALSE(is_frozen && same(value, never.at(name))) << name;
      // A parameter that one of the step's passes trains is trained.
      EXPECT_FALSE(is_frozen && same(in_parts.at(name), once.at(name))) << name;
    }
  }
}

TEST(TorchPasses, RanksThatFreezeDifferentParametersAreTold) {
  try {
    run_ranks(2, [&](World& world) {
      const Net net = seeded(1, [] { return net_of(2); });
      auto model = shards::shard(net, world, {.model = {.strategy = Strategy::zero3}});
      model.optimize_with(SGD{});
      net->out->bias.set_requires_grad(world.rank() == 0);
      model.backward(model(batch(0)).sum());
      model.step();
    });
    ADD_FAILURE() << "not noticed";
  } catch (const CommError& error) {
    EXPECT_THAT(std::string{error.what()}, HasSubstr("1 frozen from"));
  }
}

// An evaluation changes neither modes nor a bit of the steps after it.
TEST(TorchEvaluation, DoesNotChangeTheTraining) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    std::vector<double> losses;
    for (const bool evaluates : {false, true}) {
      run_ranks(2, [&](World& world) {
        const Net net = seeded(1, [] { return net_of(3); });
        auto model = shards::shard(net, world, {.model = {.strategy = strategy}});
        model.optimize_with(AdamW{});
        net->block(1).eval();
        for (int step = 0; step < 3; ++step) {
          model.backward(model(batch(step)).pow(2).mean());
          model.step();
          if (!evaluates) { continue; }
          const double found = model.evaluate([&] {
            EXPECT_FALSE(net->is_training());
            EXPECT_FALSE(torch::GradMode::is_enabled());
            return model(batch(7)).sum().item<double>() + model(batch(8)).sum().item<double>();
          });
          EXPECT_TRUE(std::isfinite(found));
          EXPECT_TRUE(torch::GradMode::is_enabled());
          EXPECT_TRUE(net->is_training() && net->block(0).is_training());
          EXPECT_FALSE(net->block(1).is_training() || net->block(1).up->is_training());
        }
        if (world.rank() == 0) { losses.push_back(model.report().loss); }
      });
    }
    EXPECT_EQ(losses.at(0), losses.at(1)) << tessera::to_string(strategy);
  }
}

}  // namespace
}  // namespace torch_test

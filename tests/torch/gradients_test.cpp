// What libtorch's users do with gradients between backward and step: clipping, zero_grad, loops of
// their own. Gradients are sharded there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "modules.hpp"
#include "support/rounding.hpp"
#include "tessera/tessera.hpp"
#include "tessera/torch.hpp"

namespace torch_test::gradients_test {
namespace {

using tessera::ConfigError;
using tessera::ContractError;
using tessera::DType;
using tessera::Error;
using tessera::run_ranks;
using tessera::SGD;
using tessera::Strategy;
using tessera::World;
namespace shards = tessera::torch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;
using Tensors = std::map<std::string, Tensor>;

constexpr std::int64_t kWidth = 6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    in = register_module("in", torch::nn::Linear(5, kWidth));
    list = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 4; ++i) { list->push_back(Block{kWidth}); }
    out = register_module("out", torch::nn::Linear(kWidth, 5));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = in(x);
    for (const auto& block : *list) { y = block->as<BlockImpl>()->forward(y); }
    return out(y);
  }
  torch::nn::Linear in{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::Linear out{nullptr};
};
using Net = std::shared_ptr<NetImpl>;
using Model = shards::Sharded<NetImpl>;

Net make_net() {
  return seeded(1, [] { return std::make_shared<NetImpl>(); });
}
Tensor batch(int rank, int i) {
  return seeded(100 + static_cast<std::uint64_t>(10 * rank + i),
                [] { return torch::randn({4, 5}); });
}
Tensor loss_of(const Tensor& y) {
  return 3 * y.pow(2).mean();
}

constexpr float kRate = 0.5F;
const std::vector<Strategy> kStrategies{Strategy::ddp, Strategy::zero1, Strategy::zero2,
                                        Strategy::zero3, Strategy::hybrid};

Model sharded(World& world, Strategy strategy, tessera::ModelOptions options = {}) {
  options.strategy = strategy;
  if (strategy == Strategy::hybrid) { options.shard_group = world.size(); }
  Model model = shards::shard(make_net(), world, {.model = options});
  model.optimize_with(SGD{.lr = kRate, .momentum = 0.0F});
  return model;
}

// What happens between backward and step, to the module's parameters; returns a number.
struct Treatment {
  std::string name;
  std::function<double(NetImpl&)> apply;
};
void PrintTo(const Treatment& treatment, std::ostream* out) {
  *out << treatment.name;
}

std::vector<Treatment> treatments() {
  std::vector<Treatment> all;
  all.push_back({"Norm2", [](NetImpl& net) {
                   return torch::nn::utils::clip_grad_norm_(net.parameters(), 0.25);
                 }});
  all.push_back({"NormInfinity", [](NetImpl& net) {
                   return torch::nn::utils::clip_grad_norm_(net.parameters(), 0.05, kInfinity);
                 }});
  all.push_back({"NormBelowTheLimit", [](NetImpl& net) {
                   return torch::nn::utils::clip_grad_norm_(net.parameters(), 1e6, 2.0, true);
                 }});
  all.push_back({"SomeParameters", [](NetImpl& net) {
                   return torch::nn::utils::clip_grad_norm_(net.out->parameters(), 0.01);
                 }});
  all.push_back({"OneParameter", [](NetImpl& net) {
                   return torch::nn::utils::clip_grad_norm_(net.in->weight, 0.01, kInfinity);
                 }});
  all.push_back({"EachByItself", [](NetImpl& net) {
                   double sum = 0.0;
                   for (auto& parameter : net.parameters()) {
                     const double norm = parameter.grad().norm().item<double>();
                     sum += norm;
                     if (norm > 0.02) { parameter.grad().mul_(0.02 / norm); }
                   }
                   return sum;
                 }});
  all.push_back({"Divided", [](NetImpl& net) {
                   for (auto& parameter : net.parameters()) {
                     parameter.mutable_grad().div_(torch::full({}, 4.0));
                   }
                   return net.in->weight.grad().data().norm(2).item<double>();
                 }});
  all.push_back({"TwiceClipped", [](NetImpl& net) {
                   torch::nn::utils::clip_grad_norm_(net.parameters(), 0.25);
                   return torch::nn::utils::clip_grad_norm_(net.parameters(), 0.125);
                 }});
  all.push_back({"SomeZeroed", [](NetImpl& net) {
                   net.out->zero_grad();
                   net.in->weight.mutable_grad() = Tensor{};
                   return torch::nn::utils::clip_grad_norm_(net.parameters(), 0.25);
                 }});
  return all;
}

struct Outcome {
  Tensors weights;
  std::vector<double> numbers;
};

// libtorch alone, with the batches of all ranks in one.
Outcome plain(const Treatment& treatment, int ranks) {
  const Net net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(kRate));
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    std::vector<Tensor> all;
    for (int rank = 0; rank < ranks; ++rank) { all.push_back(batch(rank, step)); }
    loss_of(net->forward(torch::cat(all))).backward();
    outcome.numbers.push_back(treatment.apply(*net));
    optimizer.step();
  }
  for (const auto& item : net->named_parameters()) {
    outcome.weights[item.key()] = item.value().detach();
  }
  return outcome;
}

Outcome ours(const Treatment& treatment, Strategy strategy, int ranks, int accumulate = 1) {
  Outcome outcome;
  run_ranks(ranks, [&](World& world) {
    Model model = sharded(world, strategy, {.accumulate = accumulate});
    Outcome mine;
    for (int step = 0; step < 3; ++step) {
      model.module().zero_grad();
      for (int i = 0; i < accumulate; ++i) {
        model.backward(loss_of(model(batch(world.rank(), step))));
      }
      mine.numbers.push_back(treatment.apply(model.module()));
      model.step();
    }
    mine.weights = model.state_dict(true);
    if (world.rank() == 0) { outcome = std::move(mine); }
  });
  return outcome;
}

void expect_near(const Outcome& found, const Outcome& wanted) {
  for (std::size_t i = 0; i < wanted.numbers.size(); ++i) {
    // bound: gradients are means of 8 to 16 rows, rounded in fp32 in two orders, and three steps
    EXPECT_NEAR(found.numbers[i], wanted.numbers[i], 1e-5 * wanted.numbers[i]) << i;
  }
  for (const auto& [name, value] : wanted.weights) {
    // bound: as above
    EXPECT_TRUE(torch::allclose(found.weights.at(name), value, 1e-5, 1e-5)) << name;
  }
}

class TorchGradients : public ::testing::TestWithParam<Treatment> {};

TEST_P(TorchGradients, AreTreatedAsWholeOnesWithTheSameBitsUnderEveryStrategy) {
  expect_near(ours(GetParam(), Strategy::zero3, 1), plain(GetParam(), 1));
  const Outcome ddp = ours(GetParam(), Strategy::ddp, 2);
  expect_near(ddp, plain(GetParam(), 2));
  for (const Strategy strategy : kStrategies) {
    SCOPED_TRACE(tessera::to_string(strategy));
    const Outcome found = ours(GetParam(), strategy, 2);
    EXPECT_EQ(found.numbers, ddp.numbers);
    for (const auto& [name, value] : ddp.weights) {
      EXPECT_TRUE(torch::equal(found.weights.at(name), value)) << name;
    }
  }
  // The same micro-batch twice has the same mean.
  expect_near(ours(GetParam(), Strategy::zero2, 2, 2), plain(GetParam(), 2));
}

INSTANTIATE_TEST_SUITE_P(All, TorchGradients, ::testing::ValuesIn(treatments()),
                         [](const auto& test) { return test.param.name; });

// Norms are of gradients without their scale, and a gradient that overflowed skips the step.
TEST(TorchGradients, NormsDoNotSeeTheLossScale) {
  const Treatment clip = treatments().front();
  const auto found = [&](const tessera::LossScaling& scaling) {
    double norm = 0.0;
    run_ranks(2, [&](World& world) {
      Model model = sharded(world, Strategy::zero3, {.loss_scaling = scaling});
      model.backward(loss_of(model(batch(world.rank(), 0))));
      const double mine = clip.apply(model.module());
      if (world.rank() == 0) { norm = mine; }
      model.step();
      EXPECT_FALSE(model.report().skipped);
      model.backward(model(batch(world.rank(), 0) * 1e30).pow(2).mean());
      EXPECT_FALSE(std::isfinite(clip.apply(model.module())));
      model.step();
      EXPECT_TRUE(model.report().skipped);
    });
    return norm;
  };
  EXPECT_EQ(found({.mode = tessera::LossScaleMode::fixed, .initial = 1024.0F}), found({}));
}

// Two heads take turns. A head that rests for a step has a gradient of zeros, or none.
TEST(TorchGradients, OfWhatAStepDoesNotTrainCountAsZeros) {
  for (const bool removes : {false, true}) {
    const auto pass = [](NetImpl& net, int step, const Tensor& x) {
      const Tensor y = net.in(x);
      return step % 2 == 0 ? net.out(y) : net.list[0]->as<BlockImpl>()->forward(y);
    };
    const Net plain = make_net();
    torch::optim::SGD optimizer(plain->parameters(), torch::optim::SGDOptions(kRate));
    std::vector<double> wanted;
    for (int step = 0; step < 4; ++step) {
      plain->zero_grad(removes);
      pass(*plain, step, batch(0, step)).pow(2).mean().backward();
      wanted.push_back(torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.5));
      optimizer.step();
    }
    run_ranks(2, [&](World& world) {
      Model model = sharded(world, Strategy::zero3);
      for (int step = 0; step < 4; ++step) {
        if (step > 1) { model.module().zero_grad(removes); }  // it need not be called
        const Tensor y = model.forward([&] { return pass(model.module(), step, batch(0, step)); });
        model.backward(y.pow(2).mean());
        const double norm = torch::nn::utils::clip_grad_norm_(model.module().parameters(), 0.5);
        // bound: as above
        EXPECT_NEAR(norm, wanted[static_cast<std::size_t>(step)], 1e-5) << step;
        model.step();
      }
    });
  }
}

// As in libtorch: what was computed before is gone, what comes after counts.
TEST(TorchZeroGrad, DropsTheGradientsThatWaitForTheStep) {
  for (const bool removes : {false, true}) {
    for (const Strategy strategy : kStrategies) {
      run_ranks(2, [&](World& world) {
        SCOPED_TRACE(tessera::to_string(strategy));
        Model model = sharded(world, strategy);
        const auto train = [&](int i) { model.backward(loss_of(model(batch(world.rank(), i)))); };
        train(0);
        const Tensors wanted = model.export_gradients(true);
        model.discard();
        EXPECT_FALSE(model.module().in->weight.grad().defined()) << "discard drops it";
        train(1);
        EXPECT_TRUE(model.module().in->weight.grad().defined());
        EXPECT_EQ(model.module().in->weight.grad().sizes(), (c10::IntArrayRef{kWidth, 5}));
        const Tensor before_zero_grad = loss_of(model(batch(world.rank(), 0)));
        model.module().zero_grad(removes);
        model.backward(before_zero_grad);
        for (const auto& [name, value] : model.export_gradients(true)) {
          EXPECT_TRUE(torch::equal(value, wanted.at(name))) << name;
        }
        model.module().zero_grad(removes);
        try {
          model.step();
          ADD_FAILURE() << "a step without gradients";
        } catch (const ContractError& error) {
          EXPECT_THAT(error.what(), HasSubstr("step() is called after 0 of 1 backward passes"));
        }
        train(2);
        model.step();
        model.module().zero_grad(removes);  // nothing waits
        train(3);
        model.step();
        EXPECT_EQ(model.report().step, 2);
      });
    }
  }
}

struct Mistake {
  const char* name;
  std::function<void(Model&, int rank)> make;
  const char* says;
};

std::string said(const Mistake& mistake, Strategy strategy) {
  try {
    run_ranks(2, [&](World& world) {
      Model model = sharded(world, strategy);
      model.backward(loss_of(model(batch(world.rank(), 0))));
      mistake.make(model, world.rank());
      model.step();
    });
  } catch (const Error& error) { return error.what(); }
  return "nothing";
}

template <class Optimizer, class Options>
std::function<void(Model&, int)> optimizer_of_libtorch(const Options& options) {
  return [options](Model& model, int) {
    Optimizer optimizer(model.module().parameters(), options);
    optimizer.step();
  };
}

TEST(TorchGradientMistakes, SayWhatToCall) {
  namespace optim = torch::optim;
  const std::vector<Mistake> mistakes{
      {"clip_grad_value_",
       [](Model& model, int) {
         torch::nn::utils::clip_grad_value_(model.module().parameters(), 0.1);
       },
       "aten::clamp_ uses the gradient of \"in.weight\""},
      {"the 1-norm",
       [](Model& model, int) {
         torch::nn::utils::clip_grad_norm_(model.module().parameters(), 0.1, 1.0);
       },
       "aten::norm uses the gradient of \"in.weight\""},
      {"a sum of squares",
       [](Model& model, int) { (void)model.module().in->weight.grad().pow(2).sum(); },
       "aten::pow uses the gradient of \"in.weight\""},
      {"the largest value, not magnitude",
       [](Model& model, int) { (void)model.module().in->weight.grad().max(); },
       "aten::max uses the gradient of \"in.weight\""},
      {"the norms of rows",
       [](Model& model, int) { (void)model.module().in->weight.grad().norm(2, {1}); },
       "aten::norm uses the gradient of \"in.weight\""},
      {"a norm in another type",
       [](Model& model, int) { (void)model.module().in->weight.grad().norm(2, torch::kDouble); },
       "aten::norm uses the gradient of \"in.weight\""},
      {"magnitudes elsewhere",
       [](Model& model, int) {
         Tensor out = torch::empty({kWidth, 5});
         torch::abs_out(out, model.module().in->weight.grad());
       },
       "aten::abs uses the gradient of \"in.weight\""},
      {"magnitudes set to zero",
       [](Model& model, int) { model.module().in->weight.grad().abs().zero_(); },
       "aten::zero_ uses the gradient of \"in.weight\""},
      {"a gradient of the program's own",
       [](Model& model, int) {
         Tensor weight = model.module().in->weight;
         weight.mutable_grad() = torch::zeros(weight.sizes());
       },
       "the gradient of \"in.weight\" was assigned"},
      {"one rank clips before a pass",
       [](Model& model, int rank) {
         if (rank == 1) { torch::nn::utils::clip_grad_norm_(model.module().parameters(), 0.1); }
         model.backward(loss_of(model(batch(rank, 1))));
       },
       "2-norms of gradients"},
      {"the norm of a part",
       [](Model& model, int) { (void)model.module().in->weight.grad()[0].norm(); },
       "uses the gradient of \"in.weight\""},
      {"a gradient of the step before",
       [](Model& model, int) {
         model.step();
         torch::nn::utils::clip_grad_norm_(model.module().parameters(), 0.1);
       },
       "which the last step has used"},
      {"SGD", optimizer_of_libtorch<optim::SGD>(optim::SGDOptions(0.1)),
       "call ShardedModule::step in place of torch::optim"},
      {"SGD with momentum",
       optimizer_of_libtorch<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1)),
       "call ShardedModule::step in place of torch::optim"},
      {"Adam", optimizer_of_libtorch<optim::Adam>(optim::AdamOptions(0.1)),
       "call ShardedModule::step in place of torch::optim"},
      {"AdamW", optimizer_of_libtorch<optim::AdamW>(optim::AdamWOptions(0.1)),
       "let the optimizer write parameters (ShardedModule::step)"},
      {"Adagrad", optimizer_of_libtorch<optim::Adagrad>(optim::AdagradOptions(0.1)),
       "call ShardedModule::step in place of torch::optim"},
      {"RMSprop", optimizer_of_libtorch<optim::RMSprop>(optim::RMSpropOptions(0.1)),
       "call ShardedModule::step in place of torch::optim"},
      // Not a hang, also in the first step.
      {"one rank clips",
       [](Model& model, int rank) {
         if (rank == 1) { torch::nn::utils::clip_grad_norm_(model.module().parameters(), 0.1); }
       },
       "rank 1"},
      {"ranks clip differently",
       [](Model& model, int rank) {
         torch::nn::utils::clip_grad_norm_(model.module().parameters(), rank == 0 ? 0.1 : 0.01);
       },
       "gradients multiplied or cleared"},
  };
  for (const Mistake& mistake : mistakes) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
      EXPECT_THAT(said(mistake, strategy), HasSubstr(mistake.says))
          << mistake.name << " under " << tessera::to_string(strategy);
    }
  }
}

}  // namespace
}  // namespace torch_test::gradients_test

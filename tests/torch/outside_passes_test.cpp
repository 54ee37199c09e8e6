// Parameters of a sharded module outside its passes: target networks, readers on other threads,
// conversions, files; and one loss through several sharded modules.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "modules.hpp"
#include "tessera/tessera.hpp"
#include "tessera/torch.hpp"

namespace torch_test::outside_passes_test {
namespace {

using tessera::AdamW;
using tessera::ConfigError;
using tessera::ContractError;
using tessera::run_ranks;
using tessera::SGD;
using tessera::Strategy;
using tessera::World;
namespace shards = tessera::torch;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using torch::Tensor;
using Tensors = std::map<std::string, Tensor>;

constexpr std::int64_t kWidth = 6;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    head = register_module("head", torch::nn::Linear(5, kWidth));
    deep = register_module("deep", torch::nn::Linear(kWidth, kWidth));
    out = register_module("out", torch::nn::Linear(kWidth, 5));
  }
  Tensor forward(const Tensor& x) { return out(torch::gelu(deep(torch::gelu(head(x))))); }

  torch::nn::Linear head{nullptr};
  torch::nn::Linear deep{nullptr};
  torch::nn::Linear out{nullptr};
};
using Net = std::shared_ptr<NetImpl>;
using Model = shards::Sharded<NetImpl>;

Net make_net(std::uint64_t seed = 1) {
  return seeded(seed, [] { return std::make_shared<NetImpl>(); });
}
Tensor batch(int rank, int i) {
  return seeded(100 + static_cast<std::uint64_t>(10 * rank + i),
                [] { return torch::randn({4, 5}); });
}
Tensor loss_of(const Tensor& y) {
  return y.pow(2).mean();
}

Model sharded(World& world, Strategy strategy, std::uint64_t seed = 1) {
  tessera::ModelOptions options{.strategy = strategy};
  if (strategy == Strategy::hybrid) { options.shard_group = world.size(); }
  Model model = shards::shard(make_net(seed), world, {.model = options});
  model.optimize_with(SGD{.lr = 0.5F, .momentum = 0.0F});
  return model;
}
void train(Model& model, int rank, int i) {
  model.backward(loss_of(model(batch(rank, i))));
  model.step();
}

class TorchOutsidePasses : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, TorchOutsidePasses,
                         ::testing::Values(Strategy::dp, Strategy::ddp, Strategy::zero1,
                                           Strategy::zero2, Strategy::zero3, Strategy::hybrid),
                         [](const auto& test) {
                           return std::string{tessera::to_string(test.param)};
                         });

void expect_equal(NetImpl& net, const Tensors& wanted) {
  for (const auto& item : net.named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), wanted.at(item.key()))) << item.key();
  }
}

// Between all calls that end such a reading, as well.
TEST_P(TorchOutsidePasses, ATargetNetworkIsCopiedAsInAnyProgram) {
  run_ranks(2, [](World& world) {
    Model model = sharded(world, GetParam());
    const Net target = make_net(2);
    const auto copy = [&] {
      const torch::NoGradGuard no_grad;
      const auto values = model.module().named_parameters();
      for (auto& item : target->named_parameters()) { item.value().copy_(values[item.key()]); }
    };
    copy();  // before the first pass
    expect_equal(*target, model.state_dict(true));
    train(model, world.rank(), 0);
    copy();
    expect_equal(*target, model.state_dict(true));
    const Tensor loss = loss_of(model(batch(world.rank(), 1)));
    copy();  // between passes
    model.backward(loss);
    copy();
    model.step();
    const Tensors before = model.state_dict(true);
    {
      const torch::NoGradGuard no_grad;
      const auto values = model.module().named_parameters();
      for (auto& item : target->named_parameters()) {
        item.value().mul_(0.25).add_(values[item.key()], 0.75);
      }
    }
    EXPECT_FALSE(torch::equal(target->deep->weight, before.at("deep.weight")));
    (void)model.model();  // ends the reading
    // Without a guard, a tensor that wants no gradient can be read too, and the others cannot.
    EXPECT_TRUE(torch::equal(model.module().head->bias.detach().clone(), before.at("head.bias")));
    EXPECT_TRUE(torch::equal(model.module().head->weight.data(), before.at("head.weight")));
    EXPECT_THROW((void)model.module().forward(batch(0, 0)), ContractError) << "while reading";
    train(model, world.rank(), 2);
    EXPECT_EQ(model.report().step, 3);
  });
}

TEST_P(TorchOutsidePasses, AReadingEndsWithTheNextCall) {
  run_ranks(2, [](World& world) {
    const std::vector<std::pair<const char*, std::function<void(Model&)>>> calls{
        {"forward", [&](Model& model) { (void)model(batch(world.rank(), 1)); }},
        {"evaluate", [&](Model& m) { m.evaluate([&] { (void)m(batch(world.rank(), 1)); }); }},
        {"no_grad",
         [&](Model& model) {
           const torch::NoGradGuard no_grad;
           (void)model(batch(world.rank(), 1));
         }},
        {"discard", [](Model& model) { model.discard(); }},
        {"state_dict", [](Model& model) { (void)model.state_dict(); }},
        {"optimize_with", [](Model& model) { model.optimize_with(AdamW{}); }},
        {"model", [](Model& model) { (void)model.model().evaluate(); }},
        {"its end", [](Model& model) { const Model ended{std::move(model)}; }},
    };
    for (const auto& [name, call] : calls) {
      SCOPED_TRACE(name);
      Model model = shards::shard(make_net(), world, {.model = {.strategy = GetParam()}});
      const torch::NoGradGuard no_grad;
      const double sum = model.module().head->weight.sum().item<double>();
      EXPECT_NE(sum, 0.0);
      const at::AutoGradMode with{true};
      EXPECT_NO_THROW(call(model));
    }
  });
}

TEST_P(TorchOutsidePasses, AModuleIsClonedAndMovedToWhereItIs) {
  run_ranks(2, [](World& world) {
    Model model = sharded(world, GetParam());
    train(model, world.rank(), 0);
    const Tensors values = model.state_dict(true);
    model.module().to(torch::kCPU);
    model.module().to(torch::kFloat32);
    model.module().to(torch::kCPU, torch::kFloat32);
    const Net copy = std::dynamic_pointer_cast<NetImpl>(model.module().clone());
    expect_equal(*copy, values);
    EXPECT_NO_THROW(copy->forward(batch(0, 0)).sum().backward());
    train(model, world.rank(), 1);
    EXPECT_EQ(model.report().step, 2);
  });
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) { return error.what(); }
  return "nothing";
}

TEST_P(TorchOutsidePasses, AnotherThreadGetsAnErrorAndUsesASnapshot) {
  run_ranks(2, [](World& world) {
    Model model = sharded(world, GetParam());
    const auto elsewhere = [](const std::function<void()>& call) {
      std::string said;
      std::thread{[&] { said = message(call); }}.join();
      return said;
    };
    const auto use = [&] { (void)model.module().forward(batch(0, 0)); };
    const auto read = [&] {
      const torch::NoGradGuard no_grad;
      (void)model.module().head->weight.sum();
    };
    const char* const says = "on another thread than its rank's";
    EXPECT_THAT(elsewhere(use), HasSubstr(says)) << "before a pass";
    const Tensor loss = model.forward([&] {
      EXPECT_THAT(elsewhere(read), HasSubstr(says)) << "within a pass";
      return loss_of(model.module().forward(batch(world.rank(), 0)));
    });
    EXPECT_THAT(elsewhere(read), HasSubstr(says)) << "between passes";
    model.backward(loss);
    const auto clip = [&] { (void)model.module().head->weight.grad().norm(); };
    EXPECT_THAT(elsewhere(clip), HasSubstr(says)) << "its gradient";
    model.step();
    // libtorch's text, or from some version on ours.
    EXPECT_THAT(elsewhere([&] { (void)model.module().head->weight.data_ptr<float>(); }),
                AnyOf(HasSubstr("its data is not allocated yet"),
                      HasSubstr("\"head.weight\" of a sharded module has no memory")));

    // As docs/libtorch-features.md shows it.
    const Net snapshot = make_net(2);
    const auto values = model.state_dict(/*on_all_ranks=*/true);
    const torch::NoGradGuard no_grad;
    for (auto& item : snapshot->named_parameters()) { item.value().copy_(values.at(item.key())); }
    Tensor found;
    EXPECT_EQ(elsewhere([&] { found = snapshot->forward(batch(0, 0)); }), "nothing");
    EXPECT_TRUE(torch::equal(found, model.evaluate([&] { return model(batch(0, 0)); })));
  });
}

// `torch::save` reads memory without operators, so that it fails; a clone can be saved.
TEST_P(TorchOutsidePasses, FilesOfLibtorchAreWrittenFromAClone) {
  run_ranks(2, [](World& world) {
    Model model = sharded(world, GetParam());
    train(model, world.rank(), 0);
    const auto path = std::filesystem::temp_directory_path() /
                      ("tessera_outside_" + std::to_string(world.rank()) + ".pt");
    const Net net{&model.module(), [](auto*) {}};
    const Tensors values = model.state_dict(true);
    EXPECT_NE(message([&] { torch::save(net, path.string()); }), "nothing");
    torch::save(std::dynamic_pointer_cast<NetImpl>(net->clone()), path.string());
    Net copy = make_net(2);
    torch::load(copy, path.string());
    expect_equal(*copy, values);
    Net into{&model.module(), [](auto*) {}};
    EXPECT_THAT(message([&] { torch::load(into, path.string()); }),
                AllOf(HasSubstr("writes parameter \"head.weight\""), HasSubstr("or use load")));
    std::filesystem::remove(path);
  });
}

// Habits from DistributedDataParallel. Not a hang.
TEST_P(TorchOutsidePasses, ARankThatSavesOrReadsAloneIsTold) {
  const auto folder = std::filesystem::temp_directory_path() / "tessera_outside_alone";
  const auto said = [&](const std::function<void(Model&)>& alone) {
    return message([&] {
      run_ranks(2, [&](World& world) {
        Model model = sharded(world, GetParam());
        for (int i = 0; i < 2; ++i) {
          train(model, world.rank(), i);
          if (world.rank() == 0) { alone(model); }
        }
      });
    });
  };
  EXPECT_THAT(said([&](Model& model) { model.save(folder); }),
              AllOf(HasSubstr("ranks disagree"), HasSubstr("\"save\"")));
  EXPECT_THAT(said([&](Model& model) {
                const torch::NoGradGuard no_grad;
                (void)model.module().head->weight.norm();
              }),
              AllOf(HasSubstr("ranks disagree"), HasSubstr("outside passes")));
  std::filesystem::remove_all(folder);
}

// What `model()` ends are readings only: hooks may ask for reports in a backward pass.
TEST_P(TorchOutsidePasses, AHookMayAskForTheModel) {
  run_ranks(2, [](World& world) {
    Model model = sharded(world, GetParam());
    int calls = 0;
    const auto hook = model.module().head->weight.register_hook([&](const Tensor& gradient) {
      EXPECT_GE(model.model().steps(), 0);
      (void)model.checkpoint_extras();
      ++calls;
      return gradient;
    });
    train(model, world.rank(), 0);
    EXPECT_EQ(calls, 1);
    model.module().head->weight.remove_hook(hook);
  });
}

struct PairOfNets {
  Net first = make_net(1);
  Net second = make_net(2);
};

// One loss, two modules, each with its own optimizer, learning rate and steps.
TEST_P(TorchOutsidePasses, OneLossTrainsSeveralModules) {
  const auto loss_through = [](auto& first, auto& second, int i, int rank) {
    return loss_of(second(first(batch(rank, i))) - batch(rank, i));
  };
  PairOfNets plain;
  torch::optim::SGD first{plain.first->parameters(), torch::optim::SGDOptions(0.5)};
  torch::optim::SGD second{plain.second->parameters(), torch::optim::SGDOptions(0.125)};
  for (int step = 0; step < 4; ++step) {
    first.zero_grad();
    second.zero_grad();
    const auto call = [](Net& net) { return [&](const Tensor& x) { return net->forward(x); }; };
    auto call_first = call(plain.first);
    auto call_second = call(plain.second);
    loss_through(call_first, call_second, step, 0).backward();
    first.step();
    if (step % 2 == 1) { second.step(); }
  }
  for (const int ranks : {1, 2}) {
    run_ranks(ranks, [&](World& world) {
      Model encoder = sharded(world, GetParam(), 1);
      Model decoder = sharded(world, GetParam(), 2);
      decoder.set_learning_rate(0.125F);
      for (int step = 0; step < 4; ++step) {
        // Ranks have the same samples: the mean over them has the same value.
        const Tensor loss = loss_through(encoder, decoder, step, 0);
        shards::backward(loss, {encoder, decoder});
        encoder.step();
        step % 2 == 1 ? decoder.step() : decoder.discard();
        EXPECT_EQ(encoder.report().loss, loss.item<float>());
      }
      const auto expect_near = [&](Model& model, NetImpl& wanted) {
        const Tensors found = model.state_dict(true);
        for (const auto& item : wanted.named_parameters()) {
          // bound: four steps, each rounded a few times in fp32
          EXPECT_TRUE(torch::allclose(found.at(item.key()), item.value(), 1e-5, 1e-6))
              << item.key() << " of " << ranks;
        }
      };
      expect_near(encoder, *plain.first);
      expect_near(decoder, *plain.second);
    });
  }
}

TEST(TorchBackward, OfSeveralModulesRefusesWhatItCannotDo) {
  run_ranks(1, [](World& world) {
    Model encoder = sharded(world, Strategy::zero3, 1);
    Model decoder = sharded(world, Strategy::zero3, 2);
    const auto both = [&] { return loss_of(decoder(encoder(batch(0, 0)))); };
    EXPECT_THAT(message([&] { decoder.backward(both()); }),
                AllOf(HasSubstr("another sharded module"),
                      HasSubstr("tessera::torch::backward(loss, {a, b})")));
  });
  run_ranks(1, [](World& world) {
    Model encoder = sharded(world, Strategy::zero3, 1);
    Model decoder = sharded(world, Strategy::zero3, 2);
    const Tensor loss = loss_of(encoder(batch(0, 0)));
    EXPECT_THAT(message([&] { shards::backward(loss, {}); }), HasSubstr("no sharded module"));
    EXPECT_THAT(message([&] { shards::backward(loss, {encoder, encoder}); }), HasSubstr("twice"));
    EXPECT_THAT(message([&] { shards::backward(loss, {encoder, decoder}); }),
                HasSubstr("without a preceding forward pass"));
    Model sums = shards::shard(make_net(), world, {.loss_reduction = shards::LossReduction::sum});
    EXPECT_THAT(message([&] { shards::backward(loss, {encoder, sums}); }),
                HasSubstr("one `loss_reduction`"));
    Model halves = shards::shard(
        make_net(), world,
        {.model = {.loss_scaling = {.mode = tessera::LossScaleMode::fixed, .initial = 8.0F}}});
    EXPECT_THAT(message([&] { shards::backward(loss, {halves, encoder}); }),
                HasSubstr("`loss_scaling` to off"));
    encoder.backward(loss);
    EXPECT_NO_THROW(encoder.step());
  });
}

}  // namespace
}  // namespace torch_test::outside_passes_test

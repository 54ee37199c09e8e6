// Training programs of the kinds that people bring, each written once: with libtorch alone, and
// sharded. The loop is the same; `shard`, `backward` and `step` are the model's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "modules.hpp"
#include "tessera/tessera.hpp"
#include "tessera/torch.hpp"

namespace torch_test::trainers_test {
namespace {

using tessera::Category;
using tessera::SGD;
using tessera::Strategy;
using tessera::World;
namespace nn = torch::nn;
namespace shards = tessera::torch;
using torch::Tensor;

constexpr double kRate = 0.125;

/// What a program calls beside libtorch: nothing but this differs.
class Model {
 public:
  virtual ~Model() = default;
  /// Runs a function that uses the module as a forward pass.
  virtual Tensor forward(const std::function<Tensor()>& pass) = 0;
  virtual void backward(const Tensor& loss) = 0;
  virtual void step() = 0;
  virtual void discard() = 0;
  virtual Tensor evaluate(const std::function<Tensor()>& pass) = 0;
  virtual std::map<std::string, Tensor> state() = 0;
};
using Shard = std::function<std::unique_ptr<Model>(const std::shared_ptr<nn::Module>&)>;
using Through = std::function<void(const Tensor& loss, const std::vector<Model*>& models)>;

class Plain : public Model {
 public:
  explicit Plain(std::shared_ptr<nn::Module> module)
      : module_{std::move(module)}, optimizer_{module_->parameters(), {kRate}} {
    optimizer_.zero_grad();
  }
  Tensor forward(const std::function<Tensor()>& pass) override { return pass(); }
  void backward(const Tensor& loss) override { loss.backward(); }
  void step() override {
    optimizer_.step();
    optimizer_.zero_grad();
  }
  void discard() override { optimizer_.zero_grad(); }
  Tensor evaluate(const std::function<Tensor()>& pass) override {
    const torch::NoGradGuard no_grad;
    module_->eval();
    Tensor result = pass();
    module_->train();
    return result;
  }
  std::map<std::string, Tensor> state() override {
    std::map<std::string, Tensor> all;
    for (const auto& item : module_->named_parameters()) {
      all[item.key()] = item.value().detach().clone();
    }
    return all;
  }

 private:
  std::shared_ptr<nn::Module> module_;
  torch::optim::SGD optimizer_;
};

class Ours : public Model {
 public:
  /// `held`: the most bytes of states and slots that the rank's models held after a step.
  Ours(const std::shared_ptr<nn::Module>& module, World& world, Strategy strategy,
       std::size_t& held)
      : model{shards::shard(module, world, {.model = {.strategy = strategy}})}, held_{held} {
    model.optimize_with(SGD{.lr = static_cast<float>(kRate), .momentum = 0.0F});
  }
  Tensor forward(const std::function<Tensor()>& pass) override { return model.forward(pass); }
  void backward(const Tensor& loss) override { model.backward(loss); }
  void step() override {
    model.step();
    const tessera::CategoryBytes live = model.model().world().memory().report().live;
    held_ = std::max(held_, live.total() - live[Category::activations]);
  }
  void discard() override { model.discard(); }
  Tensor evaluate(const std::function<Tensor()>& pass) override { return model.evaluate(pass); }
  std::map<std::string, Tensor> state() override { return model.state_dict(true); }

  shards::Sharded<nn::Module> model;

 private:
  std::size_t& held_;
};

/// Where a program runs: its samples and random numbers depend on this only.
struct Place {
  Shard shard;
  Through through;
  int rank;
};
Tensor batch(const Place& place, int i, std::vector<std::int64_t> shape) {
  const auto seed = 1000 + static_cast<std::uint64_t>(100 * place.rank + i);
  return seeded(seed, [&] { return torch::randn(shape); });
}

/// The modules of a program, built alike on all ranks, and its loop, which returns losses.
struct Trainer {
  std::string name;
  std::function<std::vector<std::shared_ptr<nn::Module>>()> build;
  std::function<std::vector<float>(const std::vector<std::shared_ptr<nn::Module>>&, const Place&)>
      loop;
  std::vector<int> backward_passes = {1, 1};  // of a step, by module
};
void PrintTo(const Trainer& trainer, std::ostream* out) {
  *out << trainer.name;
}
template <class Made>
Made& as(const std::shared_ptr<nn::Module>& module) {
  return *std::dynamic_pointer_cast<Made>(module);
}
template <class... Made>
auto built() {
  return [] {
    return seeded(
        1, [] { return std::vector<std::shared_ptr<nn::Module>>{std::make_shared<Made>()...}; });
  };
}

// ------------------------------------------------------------------------------------- modules

/// Without containers.
struct Classifier : nn::Module {
  Tensor forward(Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    return torch::log_softmax(fc2(torch::relu(fc1(x.flatten(1)))), 1);
  }
  nn::Conv2d conv1{register_module("conv1", nn::Conv2d(1, 4, 3))};
  nn::Conv2d conv2{register_module("conv2", nn::Conv2d(4, 8, 3))};
  nn::Linear fc1{register_module("fc1", nn::Linear(32, 16))};
  nn::Linear fc2{register_module("fc2", nn::Linear(16, 5))};
};

struct Generator : nn::Module {
  Tensor forward(const Tensor& z) { return out(torch::relu(norm(in(z)))); }
  nn::Linear in{register_module("in", nn::Linear(3, 12))};
  nn::BatchNorm1d norm{register_module("norm", nn::BatchNorm1d(12))};
  nn::Linear out{register_module("out", nn::Linear(12, 4))};
};
struct Critic : nn::Module {
  Tensor forward(const Tensor& x) { return out(torch::leaky_relu(deep(in(x)), 0.2)); }
  nn::Linear in{register_module("in", nn::Linear(4, 10))};
  nn::Linear deep{register_module("deep", nn::Linear(10, 10))};
  nn::Linear out{register_module("out", nn::Linear(10, 1))};
};

/// Maps one kind of sample to another and back.
struct Translator : nn::Module {
  Tensor forward(const Tensor& x) { return x + out(torch::gelu(in(x))); }
  nn::Linear in{register_module("in", nn::Linear(4, 14))};
  nn::Linear out{register_module("out", nn::Linear(14, 4))};
};

struct Policy : nn::Module {
  Tensor forward(const Tensor& x) { return torch::tanh(body(x)); }
  nn::Linear body{register_module("body", nn::Linear(6, 16))};
  nn::Linear actor{register_module("actor", nn::Linear(16, 3))};
  nn::Linear value{register_module("value", nn::Linear(16, 1))};
};

/// An LSTM whose head has the embedding's weight.
struct Language : nn::Module {
  Tensor forward(const Tensor& tokens) {
    const Tensor x = std::get<0>(lstm(embedding(tokens)));
    return torch::matmul(x, embedding->weight.t());
  }
  nn::Embedding embedding{register_module("embedding", nn::Embedding(20, 8))};
  nn::LSTM lstm{register_module("lstm", nn::LSTM(nn::LSTMOptions(8, 8).batch_first(true)))};
};

/// Residual blocks with BatchNorm, each computed again in the backward pass.
struct Recomputed : nn::Module {
  Recomputed() {
    for (int i = 0; i < 4; ++i) {
      blocks->push_back(
          nn::Sequential{nn::Linear(6, 12), nn::BatchNorm1d(12), nn::ReLU(), nn::Linear(12, 6)});
    }
    register_module("blocks", blocks);
  }
  Tensor forward(Tensor x) {
    for (const auto& module : *blocks) {
      const auto block = [&](const Tensor& in) {
        return module->as<nn::Sequential>()->forward(in);
      };
      x = x + shards::recompute(block, x);
    }
    return x;
  }
  nn::ModuleList blocks;
};

// -------------------------------------------------------------------------------------- programs

std::vector<Trainer> trainers() {
  using Modules = std::vector<std::shared_ptr<nn::Module>>;
  std::vector<Trainer> all;
  all.push_back(
      {"ConvClassifier", built<Classifier>(), [](const Modules& modules, const Place& at) {
         auto& net = as<Classifier>(modules[0]);
         const auto model = at.shard(modules[0]);
         std::vector<float> losses;
         for (int i = 0; i < 3; ++i) {
           const Tensor x = batch(at, i, {6, 1, 14, 14});
           const Tensor labels = torch::arange(6) % 5;
           const Tensor loss =
               torch::nll_loss(model->forward([&] { return net.forward(x); }), labels);
           model->backward(loss);
           losses.push_back(loss.item<float>());
           model->step();
           const Tensor hits = model->evaluate([&] { return net.forward(x).argmax(1).eq(labels); });
           EXPECT_EQ(hits.numel(), 6);
         }
         return losses;
       }});
  all.push_back(
      {"Gan",
       built<Generator, Critic>(),
       [](const Modules& modules, const Place& at) {
         auto& generator = as<Generator>(modules[0]);
         auto& critic = as<Critic>(modules[1]);
         const auto g = at.shard(modules[0]);
         const auto d = at.shard(modules[1]);
         const auto train = [](nn::Module& module, bool on) {
           for (auto& parameter : module.parameters()) { parameter.requires_grad_(on); }
         };
         std::vector<float> losses;
         for (int i = 0; i < 3; ++i) {
           const Tensor fake = g->forward([&] { return generator.forward(batch(at, i, {8, 3})); });
           const auto judge = [&](const Tensor& x, double wanted) {
             const Tensor y = d->forward([&] { return critic.forward(x); });
             return torch::binary_cross_entropy_with_logits(y, torch::full_like(y, wanted));
           };
           d->backward(judge(batch(at, 10 + i, {8, 4}) + 2, 0.9));
           const Tensor of_fake = judge(fake.detach(), 0.0);
           d->backward(of_fake);
           d->step();
           train(critic, false);
           const Tensor fooled = judge(fake, 1.0);
           g->backward(fooled);
           train(critic, true);
           g->step();
           losses.push_back(of_fake.item<float>());
           losses.push_back(fooled.item<float>());
         }
         return losses;
       },
       {1, 2}});
  all.push_back({"TwoGeneratorsOneLoss", built<Translator, Translator>(),
                 [](const Modules& modules, const Place& at) {
                   auto& there = as<Translator>(modules[0]);
                   auto& back = as<Translator>(modules[1]);
                   const auto a = at.shard(modules[0]);
                   const auto b = at.shard(modules[1]);
                   std::vector<float> losses;
                   for (int i = 0; i < 3; ++i) {
                     const Tensor x = batch(at, i, {5, 4});
                     const Tensor y = batch(at, 20 + i, {5, 4}) * 2;
                     const auto run_a = [&](const Tensor& in) {
                       return a->forward([&] { return there.forward(in); });
                     };
                     const auto run_b = [&](const Tensor& in) {
                       return b->forward([&] { return back.forward(in); });
                     };
                     const Tensor loss =
                         (run_b(run_a(x)) - x).abs().mean() + (run_a(run_b(y)) - y).abs().mean();
                     at.through(loss, {a.get(), b.get()});
                     losses.push_back(loss.item<float>());
                     a->step();
                     b->step();
                   }
                   return losses;
                 }});
  all.push_back(
      {"PolicyWithEarlyStop", built<Policy>(), [](const Modules& modules, const Place& at) {
         auto& net = as<Policy>(modules[0]);
         const auto model = at.shard(modules[0]);
         std::vector<float> losses;
         for (int rollout = 0; rollout < 2; ++rollout) {
           const Tensor seen = batch(at, rollout, {10, 6});
           const auto act = [&] { return torch::log_softmax(net.actor(net.forward(seen)), 1); };
           const Tensor before = [&] {
             const torch::NoGradGuard no_grad;
             return model->forward(act);
           }();
           const Tensor gain = batch(at, 30 + rollout, {10});
           for (int epoch = 0; epoch < 4; ++epoch) {
             const Tensor now = model->forward(act);
             // The same on all ranks, since they do the same number of epochs.
             if (epoch == 2 + rollout) { break; }
             const Tensor ratio = (now - before).select(1, 0).exp();
             const Tensor value =
                 model->forward([&] { return net.value(net.forward(seen)).squeeze(1); });
             const Tensor loss = -torch::min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() +
                                 0.5 * (value - gain).pow(2).mean();
             model->backward(loss);
             torch::nn::utils::clip_grad_norm_(net.parameters(), 0.5);
             losses.push_back(loss.item<float>());
             model->step();
           }
         }
         return losses;
       }});
  all.push_back(
      {"SelfPlayWithAReader", built<Policy>(), [](const Modules& modules, const Place& at) {
         auto& net = as<Policy>(modules[0]);
         const auto model = at.shard(modules[0]);
         const auto player = seeded(2, [] { return std::make_shared<Policy>(); });
         std::vector<float> losses;
         for (int i = 0; i < 3; ++i) {
           const auto values = model->state();
           Tensor moves;
           std::thread{[&] {
             const torch::NoGradGuard no_grad;
             for (auto& item : player->named_parameters()) {
               item.value().copy_(values.at(item.key()));
             }
             moves = player->actor(player->forward(batch(at, i, {7, 6}))).argmax(1);
           }}.join();
           const Tensor x = batch(at, 40 + i, {7, 6});
           const Tensor loss = torch::cross_entropy_loss(
               model->forward([&] { return net.actor(net.forward(x)); }), moves);
           model->backward(loss);
           losses.push_back(loss.item<float>());
           model->step();
         }
         return losses;
       }});
  all.push_back(
      {"LstmWithTiedWeights", built<Language>(), [](const Modules& modules, const Place& at) {
         auto& net = as<Language>(modules[0]);
         const auto model = at.shard(modules[0]);
         std::vector<float> losses;
         for (int i = 0; i < 3; ++i) {
           const Tensor tokens = (batch(at, i, {4, 9}).abs() * 10).to(torch::kLong) % 20;
           const Tensor y = model->forward([&] { return net.forward(tokens.slice(1, 0, 8)); });
           const Tensor loss =
               torch::cross_entropy_loss(y.reshape({-1, 20}), tokens.slice(1, 1, 9).reshape({-1}));
           model->backward(loss);
           torch::nn::utils::clip_grad_norm_(net.parameters(), 0.25);
           losses.push_back(loss.item<float>());
           model->step();
         }
         return losses;
       }});
  all.push_back(
      {"BatchNormRecomputed", built<Recomputed>(), [](const Modules& modules, const Place& at) {
         auto& net = as<Recomputed>(modules[0]);
         const auto model = at.shard(modules[0]);
         std::vector<float> losses;
         for (int i = 0; i < 3; ++i) {
           const Tensor x = batch(at, i, {9, 6});
           const Tensor loss =
               (model->forward([&] { return net.forward(x); }) - x.sin()).pow(2).mean();
           model->backward(loss);
           losses.push_back(loss.item<float>());
           model->step();
         }
         return losses;
       }});
  all.push_back({"GradientPenalty", built<Critic>(), [](const Modules& modules, const Place& at) {
                   auto& net = as<Critic>(modules[0]);
                   const auto model = at.shard(modules[0]);
                   std::vector<float> losses;
                   for (int i = 0; i < 3; ++i) {
                     const Tensor x = batch(at, i, {6, 4}).requires_grad_(true);
                     const Tensor y = model->forward([&] { return net.forward(x); });
                     const Tensor slope =
                         torch::autograd::grad({y.sum()}, {x}, {}, true, true).at(0);
                     const Tensor loss = y.mean() + 10 * (slope.norm(2, {1}) - 1).pow(2).mean();
                     model->backward(loss);
                     losses.push_back(loss.item<float>());
                     model->step();
                   }
                   return losses;
                 }});
  all.push_back({"TargetNetwork", built<Policy>(), [](const Modules& modules, const Place& at) {
                   auto& net = as<Policy>(modules[0]);
                   const auto model = at.shard(modules[0]);
                   const auto target = seeded(1, [] { return std::make_shared<Policy>(); });
                   std::vector<float> losses;
                   for (int i = 0; i < 3; ++i) {
                     const Tensor x = batch(at, i, {8, 6});
                     const Tensor goal = [&] {
                       const torch::NoGradGuard no_grad;
                       return std::get<0>(target->actor(target->forward(x + 1)).max(1)) * 0.9 +
                              x.sum(1);
                     }();
                     const Tensor q = model->forward([&] { return net.actor(net.forward(x)); });
                     const Tensor loss = torch::smooth_l1_loss(std::get<0>(q.max(1)), goal);
                     model->backward(loss);
                     losses.push_back(loss.item<float>());
                     model->step();
                     const torch::NoGradGuard no_grad;
                     const auto values = net.named_parameters();
                     for (auto& item : target->named_parameters()) {
                       item.value().mul_(0.5).add_(values[item.key()], 0.5);
                     }
                   }
                   return losses;
                 }});
  return all;
}

struct Outcome {
  std::vector<float> losses;
  std::size_t states_and_slots = 0;  // rank 0's, as its peak
  std::size_t peak = 0;
};

std::vector<float> plain(const Trainer& trainer) {
  const Place place{[](const auto& module) { return std::make_unique<Plain>(module); },
                    [](const Tensor& loss, const auto&) { loss.backward(); }, 0};
  return trainer.loop(trainer.build(), place);
}

Outcome sharded(const Trainer& trainer, int ranks, Strategy strategy) {
  Outcome outcome;
  tessera::run_ranks(ranks, [&](World& world) {
    Outcome mine;
    const Place place{[&](const auto& module) {
                        return std::make_unique<Ours>(module, world, strategy,
                                                      mine.states_and_slots);
                      },
                      [](const Tensor& loss, const std::vector<Model*>& models) {
                        std::vector<std::reference_wrapper<shards::ShardedModule>> all;
                        for (Model* const model : models) {
                          all.emplace_back(dynamic_cast<Ours&>(*model).model);
                        }
                        shards::backward(loss, all);
                      },
                      world.rank()};
    mine.losses = trainer.loop(trainer.build(), place);
    mine.peak = world.memory().report().peak_bytes;
    if (world.rank() == 0) { outcome = std::move(mine); }
  });
  return outcome;
}

// The bytes of states and slots that a plan of each of the modules names.
std::size_t planned(const Trainer& trainer, int ranks, Strategy strategy) {
  std::size_t bytes = 0;
  const std::size_t modules = trainer.build().size();
  for (std::size_t i = 0; i < modules; ++i) {
    const auto plan = shards::plan([&] { return trainer.build()[i]; },
                                   {.ranks = {.ranks = ranks},
                                    .shard = {.model = {.strategy = strategy}},
                                    .optimizer = SGD{.momentum = 0.0F},
                                    .backward_passes = trainer.backward_passes[i]});
    const tessera::MemoryReport& memory = plan.ranks.front().memory;
    bytes += memory.at_peak.total() - memory.at_peak[Category::activations];
  }
  return bytes;
}

class TorchTrainers : public ::testing::TestWithParam<Trainer> {};
INSTANTIATE_TEST_SUITE_P(All, TorchTrainers, ::testing::ValuesIn(trainers()),
                         [](const auto& test) { return test.param.name; });

TEST_P(TorchTrainers, TrainAsTheyDidAndAlikeUnderEveryStrategy) {
  const std::vector<float> wanted = plain(GetParam());
  ASSERT_GE(wanted.size(), 3U);
  for (const Strategy strategy :
       {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    SCOPED_TRACE(tessera::to_string(strategy));
    const Outcome one = sharded(GetParam(), 1, strategy);
    ASSERT_EQ(one.losses.size(), wanted.size());
    EXPECT_EQ(one.losses.front(), wanted.front());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      // bound: an update rounds in another order than libtorch's, and few steps follow
      EXPECT_NEAR(one.losses[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << i;
    }
  }
  for (const int ranks : {2, 4}) {
    const Outcome ddp = sharded(GetParam(), ranks, Strategy::ddp);
    for (const Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      SCOPED_TRACE(std::string{tessera::to_string(strategy)} + " on " + std::to_string(ranks));
      const Outcome found = sharded(GetParam(), ranks, strategy);
      EXPECT_EQ(found.losses, ddp.losses);
    }
  }
}

TEST_P(TorchTrainers, HoldWhatIsPlannedAndNeverMoreThanUnderDdp) {
  for (const int ranks : {2, 4}) {
    const Outcome ddp = sharded(GetParam(), ranks, Strategy::ddp);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
      SCOPED_TRACE(std::string{tessera::to_string(strategy)} + " on " + std::to_string(ranks));
      const Outcome found = sharded(GetParam(), ranks, strategy);
      EXPECT_LE(found.peak, ddp.peak);
      EXPECT_EQ(found.states_and_slots, planned(GetParam(), ranks, strategy));
    }
  }
}

}  // namespace
}  // namespace torch_test::trainers_test

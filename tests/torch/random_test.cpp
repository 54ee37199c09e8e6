// The random numbers of ranks: a generator for each rank, whatever draws.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "torch/drawing_operators.hpp"
#include "torch/rank_random.hpp"
#include "torch/small_net.hpp"

namespace torch_random_test {

at::Tensor twice_noise(const at::Tensor& x) {
  return x + torch::rand_like(x) * 2;
}

}  // namespace torch_random_test

// An operator of a program, which draws.
TORCH_LIBRARY(tessera_random_test, library) {
  library.def("noisy(Tensor x) -> Tensor", &torch_random_test::twice_noise);
}

namespace tessera::torch_random_test {
namespace {

using tessera::torch::DrawsFrom;
using tessera::torch::RandomNumbers;
using tessera::torch::RankRandom;
using ::testing::HasSubstr;

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.equal(b);
}

at::Tensor state_of_default() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  return generator.get_state();
}

at::Tensor noisy(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("tessera_random_test::noisy", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

struct Draw {
  const char* name;
  std::function<at::Tensor()> draw;
};

std::vector<Draw> draws() {
  const at::Tensor x = ::torch::linspace(0.1, 0.9, 60).view({3, 4, 5});
  const auto in_place = [x](auto fill) {
    return [x, fill] {
      at::Tensor y = x.clone();
      fill(y);
      return y;
    };
  };
  return {
      {"rand", [] { return ::torch::rand({40}); }},
      {"randn", [] { return ::torch::randn({40}); }},
      {"randint", [] { return ::torch::randint(0, 100, {40}); }},
      {"randperm", [] { return ::torch::randperm(40); }},
      {"rand_like", [x] { return ::torch::rand_like(x); }},
      {"randn_like", [x] { return ::torch::randn_like(x); }},
      {"randint_like", [x] { return ::torch::randint_like(x, 100); }},
      {"normal of tensors", [x] { return ::at::normal(x, x); }},
      {"bernoulli", [x] { return ::torch::bernoulli(x); }},
      {"multinomial", [] { return ::torch::multinomial(::torch::ones({9}), 5); }},
      {"poisson", [x] { return ::torch::poisson(x * 9); }},
      {"binomial", [x] { return ::torch::binomial(x * 0 + 9, x); }},
      {"uniform_", in_place([](at::Tensor& y) { y.uniform_(); })},
      {"normal_", in_place([](at::Tensor& y) { y.normal_(); })},
      {"random_", in_place([](at::Tensor& y) { y.random_(0, 50); })},
      {"exponential_", in_place([](at::Tensor& y) { y.exponential_(); })},
      {"bernoulli_", in_place([](at::Tensor& y) { y.bernoulli_(0.5); })},
      {"dropout", [x] { return ::torch::dropout(x, 0.5, true); }},
      {"dropout_", in_place([](at::Tensor& y) { ::torch::dropout_(y, 0.5, true); })},
      {"native_dropout", [x] { return std::get<0>(::torch::native_dropout(x, 0.5, true)); }},
      {"alpha_dropout", [x] { return ::torch::alpha_dropout(x, 0.5, true); }},
      {"feature_dropout", [x] { return ::torch::feature_dropout(x, 0.5, true); }},
      {"feature_alpha_dropout", [x] { return ::torch::feature_alpha_dropout(x, 0.5, true); }},
      {"rrelu", [x] { return ::torch::rrelu(x - 0.5, 0.1, 0.3, true); }},
      {"an LSTM's dropout",
       [x] {
         ::torch::nn::LSTM net(::torch::nn::LSTMOptions(5, 4).num_layers(3).dropout(0.5));
         return std::get<0>(net(x)).detach();
       }},
      {"attention's dropout",
       [x] {
         ::torch::nn::MultiheadAttention net(
             ::torch::nn::MultiheadAttentionOptions(5, 1).dropout(0.5));
         return std::get<0>(net(x, x, x)).detach();
       }},
      {"gumbel_softmax",
       [x] {
         return ::torch::nn::functional::gumbel_softmax(
             x, ::torch::nn::functional::GumbelSoftmaxFuncOptions());
       }},
      {"an operator of the program", [x] { return noisy(x); }},
      {"libtorch's default generator, named",
       [] { return ::torch::empty({40}).uniform_(0, 1, at::detail::getDefaultCPUGenerator()); }},
  };
}

// What a rank draws is what libtorch draws with that seed, and libtorch's own generator stays.
TEST(TorchRandom, EveryDrawOfARankIsFromItsGenerator) {
  for (const Draw& c : draws()) {
    SCOPED_TRACE(c.name);
    ::torch::manual_seed(5);
    const at::Tensor first = c.draw();
    const at::Tensor second = c.draw();
    ::torch::manual_seed(6);
    const at::Tensor before = state_of_default();
    {
      const DrawsFrom rank{std::make_shared<RankRandom>(5)};
      EXPECT_TRUE(same(c.draw(), first));
      EXPECT_TRUE(same(c.draw(), second));
    }
    EXPECT_FALSE(same(first, second)) << "it draws nothing";
    EXPECT_TRUE(same(state_of_default(), before));
  }
}

// Operators of libtorch that can draw, by their names: none is missed.
TEST(TorchRandom, OperatorsThatDrawAreKnown) {
  int found = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::")) { continue; }
    const std::string plain = name.name.substr(6);
    bool draws = plain.find("dropout") != plain.npos && plain.find("backward") == plain.npos;
    for (const char* const begin : {"rand", "bernoulli", "multinomial", "poisson", "binomial",
                                    "lstm", "gru", "rnn_tanh", "rnn_relu", "normal", "uniform",
                                    "exponential", "geometric", "cauchy", "log_normal", "rrelu"}) {
      const std::string_view rest =
          std::string_view{plain}.substr(std::min(plain.size(), std::string_view{begin}.size()));
      draws =
          draws || (plain.starts_with(begin) && (rest.empty() || rest == "_" || rest == "_like" ||
                                                 rest == "int" || rest == "n" || rest == "perm"));
    }
    if (!draws || name.overload_name.find("data") != name.overload_name.npos) { continue; }
    ++found;
    EXPECT_TRUE(tessera::torch::may_draw(*op)) << name.name << "." << name.overload_name;
  }
  EXPECT_GT(found, 40);
}

TEST(TorchRandom, AnOperatorThatIsTurnedOffDrawsNothing) {
  const DrawsFrom rank{std::make_shared<RankRandom>(5)};
  const at::Tensor x = ::torch::ones({2, 3, 5});
  const at::Tensor before = state_of_default();  // on a rank: that of its generator
  EXPECT_TRUE(same(::torch::dropout(x, 0.5, false), x));
  ::torch::nn::functional::rrelu(x, ::torch::nn::functional::RReLUFuncOptions().training(false));
  EXPECT_TRUE(same(state_of_default(), before));
  ::torch::dropout(x, 0.5, true);
  EXPECT_FALSE(same(state_of_default(), before));
}

TEST(TorchRandom, ManualSeedSeedsTheCallingRankOnly) {
  ::torch::manual_seed(9);
  const at::Tensor expected = ::torch::rand({8});
  const at::Tensor next = ::torch::rand({8});
  ::torch::manual_seed(9);
  EXPECT_TRUE(same(::torch::rand({8}), expected));
  {
    const DrawsFrom rank{std::make_shared<RankRandom>(1)};
    ::torch::manual_seed(9);
    EXPECT_TRUE(same(::torch::rand({8}), expected));
    EXPECT_EQ(at::detail::getDefaultCPUGenerator().current_seed(), 9U);
    ::torch::manual_seed(3);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor saved = generator.get_state();
    const at::Tensor drawn = ::torch::rand({8});
    generator.set_state(saved);
    EXPECT_TRUE(same(::torch::rand({8}), drawn));
  }
  EXPECT_TRUE(same(::torch::rand({8}), next)) << "the rank has drawn from libtorch's generator";
}

/// A net with dropout, in training mode.
at::Tensor with_dropout(const torch_test::BlockFunction& block, const at::Tensor& x) {
  return ::torch::dropout(block(x), 0.3, true);
}
at::Tensor with_dropout_recomputed(const torch_test::BlockFunction& block, const at::Tensor& x) {
  return tessera::torch::recompute(
      [block](const at::Tensor& in) { return with_dropout(block, in); }, x);
}

struct Training {
  int ranks = 2;
  Strategy strategy = Strategy::ddp;
  torch_test::RunBlock run = &with_dropout;
  std::uint64_t seed = 4;
  RandomNumbers random = RandomNumbers::per_rank;
  bool same_rows = false;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<double>> by_rank;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

constexpr std::int64_t kWidth = 12;

at::Tensor rows_of(std::int64_t number) {
  return ::torch::arange(number * 16 * kWidth, (number + 1) * 16 * kWidth)
      .to(at::kFloat)
      .mul(0.37F)
      .sin()
      .view({16, kWidth});
}

Outcome train(const Training& how) {
  Outcome outcome;
  outcome.by_rank.resize(static_cast<std::size_t>(how.ranks));
  run_ranks(how.ranks, [&](World& world) {
    const auto net =
        torch_test::seeded(how.seed, [&] { return torch_test::SmallNet(3, kWidth, how.run); });
    auto model = tessera::torch::shard(
        net, world, {.model = {.strategy = how.strategy}, .seed = how.seed, .random = how.random});
    model.optimize_with(AdamW{.lr = 0.05F});
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = rows_of(how.same_rows ? step : step * world.size() + world.rank());
      const at::Tensor loss = (model(x) - x.flip(1)).pow(2).mean();
      outcome.by_rank[static_cast<std::size_t>(world.rank())].push_back(loss.item<double>());
      model.backward(loss);
      model.step();
      if (world.rank() == 0) { outcome.losses.push_back(model.report().loss); }
    }
  });
  return outcome;
}

TEST(TorchRandom, DropoutIsTheSameUnderEveryStrategyAndInEveryRun) {
  for (const int ranks : {1, 2, 3}) {
    const Outcome ddp = train({.ranks = ranks});
    for (const Strategy strategy :
         {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      SCOPED_TRACE(std::string{to_string(strategy)} + " on " + std::to_string(ranks));
      const Outcome again = train({.ranks = ranks, .strategy = strategy});
      EXPECT_EQ(again.by_rank, ddp.by_rank);
      // A recomputed dropout draws the same numbers again, and none in between.
      const Outcome recomputed =
          train({.ranks = ranks, .strategy = strategy, .run = &with_dropout_recomputed});
      EXPECT_EQ(recomputed.by_rank, ddp.by_rank);
    }
  }
}

TEST(TorchRandom, RanksDrawTheirOwnNumbersUnlessAskedForTheSame) {
  const Outcome own = train({.same_rows = true});
  EXPECT_NE(own.by_rank[0][0], own.by_rank[1][0]);
  const Outcome same = train({.random = RandomNumbers::same, .same_rows = true});
  EXPECT_EQ(same.by_rank[0], same.by_rank[1]);
  EXPECT_EQ(same.by_rank[0][0], own.by_rank[0][0]) << "rank 0 has other numbers";
  EXPECT_NE(train({.seed = 5, .same_rows = true}).by_rank[0][0], own.by_rank[0][0]);
}

// Models of one rank share its generator; a rank's numbers do not depend on how many it has.
TEST(TorchRandom, TwoModelsOfARankDrawDifferentNumbers) {
  run_ranks(2, [](World& world) {
    const auto make = [&] {
      return tessera::torch::shard(
          torch_test::seeded(1, [] { return torch_test::SmallNet(1, kWidth, &with_dropout); }),
          world);
    };
    auto one = make();
    auto other = make();
    const at::Tensor x = rows_of(0);
    const at::Tensor from_one = one.evaluate([&] { return one(x); });
    const at::Tensor from_other = other.evaluate([&] { return other(x); });
    EXPECT_FALSE(same(from_one, from_other));
  });
}

}  // namespace
}  // namespace tessera::torch_random_test

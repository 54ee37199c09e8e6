#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/rounding.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "torch/small_net.hpp"

// Functions recomputed in the backward pass: the same bits with less memory.
namespace tessera::torch_recompute_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using ::testing::HasSubstr;
using torch_test::run_plainly;
using torch_test::run_recomputed;
using torch_test::RunBlock;
using torch_test::seeded;
using torch_test::SmallNet;

constexpr int kBlocks = 3;
constexpr std::int64_t kWidth = 12;
constexpr std::int64_t kRows = 64;
constexpr std::size_t kOutput = kRows * kWidth * sizeof(float);  // of a block

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

using Block = torch_test::BlockFunction;

// A recomputed function within a recomputed function.
at::Tensor recomputed_twice(const Block& block, const at::Tensor& x) {
  return tessera::torch::recompute(
      [block](const at::Tensor& in) { return run_recomputed(block, in * 1) * 1; }, x);
}

// Several inputs, one of them also used outside, and several outputs, one with integers and one
// unused.
at::Tensor recomputed_with_more(const Block& block, const at::Tensor& x) {
  const Tensors out = tessera::torch::recompute(
      [block](const Tensors& in) -> Tensors {
        const at::Tensor y = block(in[0]);
        return {in[1].argmax(1), y, y * 2};
      },
      {x, x});
  EXPECT_FALSE(out[0].requires_grad());
  return out[1];
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::size_t after_forward = 0;  // activations kept by one more forward pass
};

Trained train(World& world, Strategy strategy, const RunBlock& run) {
  auto model = tessera::torch::shard(seeded(1, [&] { return SmallNet(kBlocks, kWidth, run); }),
                                     world, {.model = {.strategy = strategy, .accumulate = 2}});
  model.optimize_with(AdamW{.lr = 0.05F});
  Trained result;
  for (int step = 0; step < 3; ++step) {
    for (int micro = 0; micro < 2; ++micro) {
      const at::Tensor x =
          seeded(static_cast<std::uint64_t>((10 * step + micro) * world.size() + world.rank()),
                 [] { return ::torch::randn({kRows, kWidth}); });
      const std::size_t before = world.memory().report().live[Category::activations];
      const at::Tensor y = model(x);
      result.after_forward = world.memory().report().live[Category::activations] - before;
      model.backward((y - x.flip(1)).pow(2).mean());
    }
    model.step();
    result.losses.push_back(model.report().loss);
    result.norms.push_back(model.report().grad_norm);
  }
  return result;
}

class TorchRecompute : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, TorchRecompute,
                         ::testing::Values(Strategy::ddp, Strategy::zero2, Strategy::zero3),
                         [](const auto& name) { return std::string{to_string(name.param)}; });

TEST_P(TorchRecompute, GivesTheSameBitsForTheMemoryOfOutputsAlone) {
  struct Case {
    const char* name;
    RunBlock run;
    std::size_t kept;  // bytes of activations
  };
  const std::vector<Case> cases{
      {"recomputed", &run_recomputed, kBlocks * kOutput},
      {"twice", &recomputed_twice, kBlocks * kOutput},
      {"with more", &recomputed_with_more, kBlocks * kOutput},
  };
  run_ranks(2, [&](World& world) {
    const Trained plain = train(world, GetParam(), &run_plainly);
    EXPECT_EQ(plain.after_forward, kBlocks * 5 * kOutput);
    EXPECT_LT(plain.losses.back(), plain.losses.front());
    for (const Case& c : cases) {
      const Trained again = train(world, GetParam(), c.run);
      EXPECT_EQ(again.losses, plain.losses) << c.name;
      EXPECT_EQ(again.norms, plain.norms) << c.name;
      EXPECT_EQ(again.after_forward, c.kept) << c.name;
    }
  });
}

// A parameter used in a recomputed function and after it gets two gradients.
struct TiedImpl : ::torch::nn::Module {
  explicit TiedImpl(RunBlock run)
      : run_{std::move(run)},
        layer_{register_module("layer", ::torch::nn::Linear(kWidth, kWidth))} {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor in = layer_(x).tanh();
    return layer_(run_([this](const at::Tensor& y) { return layer_(y).tanh(); }, in));
  }

 private:
  RunBlock run_;
  ::torch::nn::Linear layer_;
};

TEST_P(TorchRecompute, ReachesParametersThatAreUsedOutsideToo) {
  run_ranks(2, [&](World& world) {
    std::vector<double> losses;
    for (const RunBlock& run : {RunBlock{&run_plainly}, RunBlock{&run_recomputed}}) {
      auto model = tessera::torch::shard(seeded(2, [&] { return std::make_shared<TiedImpl>(run); }),
                                         world, {.model = {.strategy = GetParam()}});
      model.optimize_with(AdamW{.lr = 0.05F});
      for (int step = 0; step < 2; ++step) {
        model.backward((model(::torch::ones({4, kWidth})) - 1).pow(2).mean());
        model.step();
      }
      losses.push_back(model.report().loss);
    }
    // A weight's three gradients are added in another order: then two steps of three products.
    const double roundings = 2 * test::layers_roundings(3, kWidth, 4);
    EXPECT_NEAR(losses[0], losses[1], test::chain_difference(roundings) * losses[0]);
  });
}

// A recomputed function may use more units than there are slots.
TEST_P(TorchRecompute, MayUseAnyNumberOfUnits) {
  const auto losses = [&](bool recomputes) {
    std::vector<double> result;
    run_ranks(2, [&](World& world) {
      auto model = tessera::torch::shard(
          seeded(1, [] { return SmallNet(kBlocks, kWidth, &run_plainly); }), world,
          {.model = {.strategy = GetParam(), .keep_whole = KeepWhole::never}});
      model.optimize_with(AdamW{.lr = 0.05F});
      for (int step = 0; step < 2; ++step) {
        const auto pass = [&](const at::Tensor& x) { return model.module().forward(x); };
        const at::Tensor x = ::torch::ones({kRows, kWidth});
        const at::Tensor y =
            model.forward([&] { return recomputes ? run_recomputed(pass, x) : pass(x); });
        model.backward((y - 2).pow(2).mean());
        model.step();
        if (world.rank() == 0) { result.push_back(model.report().loss); }
      }
    });
    return result;
  };
  EXPECT_EQ(losses(true), losses(false));
}

TEST(TorchRecompute, DrawsTheSameNumbersAgain) {
  const auto gradients = [](const RunBlock& run) {
    return seeded(3, [&] {
      ::torch::nn::Linear layer(kWidth, kWidth);
      const at::Tensor x = ::torch::randn({kRows, kWidth});  // requires no gradient
      at::Tensor y = run(
          [&](const at::Tensor& in) { return ::torch::dropout(layer->forward(in), 0.5, true); }, x);
      y = ::torch::dropout(y, 0.5, true);
      y.pow(2).sum().backward();
      return Tensors{y.detach(), layer->weight.grad(), layer->bias.grad(), ::torch::rand({8})};
    });
  };
  const Tensors plain = gradients(&run_plainly);
  const Tensors again = gradients(&run_recomputed);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(same_bits(plain[i], again[i])) << i;
  }
}

// A block with every kind of tensor that a forward pass writes: statistics, whose operator does not
// declare that it writes them; a counter; and a vector that the output depends on, as a spectral
// norm's.
struct WritingBlockImpl : ::torch::nn::Module {
  ::torch::nn::Linear layer{register_module("layer", ::torch::nn::Linear(kWidth, kWidth))};
  ::torch::nn::BatchNorm1d norm{register_module("norm", ::torch::nn::BatchNorm1d(kWidth))};
  at::Tensor calls = register_buffer("calls", ::torch::zeros({1}, ::torch::kLong));
  at::Tensor moving = register_buffer("moving", ::torch::ones({kWidth}));

  at::Tensor forward(const at::Tensor& x) {
    calls += 1;
    {
      const ::torch::NoGradGuard no_grad;
      moving.mul_(0.5).add_(x.detach().abs().mean(0));
    }
    return norm(layer(x)) * moving.clone();
  }
};
using WritingBlock = ::torch::nn::ModuleHolder<WritingBlockImpl>;

TEST(TorchRecompute, OfAFunctionThatWritesBuffersWritesThemOnceAndReadsWhatTheFirstRunRead) {
  const auto run_twice_nested = [](const Block& block, const at::Tensor& x) {
    return run_recomputed([&](const at::Tensor& in) { return run_recomputed(block, in); }, x);
  };
  const auto all_of = [](const RunBlock& run, bool sharded) {
    Tensors all;
    run_ranks(1, [&](World& world) {
      WritingBlock block = seeded(4, [] { return WritingBlock{}; });
      const Block once = [&](const at::Tensor& x) { return block->forward(x); };
      // Used twice in a pass, so that the second use has written before the first runs again.
      const auto loss_of = [&](const at::Tensor& x) {
        return run(once, run(once, x)).pow(2).sum();
      };
      const at::Tensor x = seeded(5, [] { return ::torch::randn({kRows, kWidth}); });
      if (sharded) {
        auto model = tessera::torch::shard(block, world);
        model.backward(model.forward([&] { return loss_of(x); }));
        for (const auto& [name, gradient] : model.export_gradients()) { all.push_back(gradient); }
      } else {
        loss_of(x).backward();
        for (const auto& item : block->named_parameters()) { all.push_back(item.value().grad()); }
      }
      for (const at::Tensor& buffer : block->buffers()) { all.push_back(buffer.clone()); }
    });
    return all;
  };
  for (const bool sharded : {false, true}) {
    const Tensors plain = all_of(&run_plainly, sharded);
    for (const RunBlock& run : {RunBlock{&run_recomputed}, RunBlock{run_twice_nested}}) {
      const Tensors again = all_of(run, sharded);
      ASSERT_EQ(plain.size(), again.size());
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(same_bits(plain[i], again[i])) << i << ", sharded " << sharded;
      }
    }
  }
}

// Memory of another size cannot get its values back: the pass fails, with the function's own error
// if there is one, and all other memory is put back.
TEST(TorchRecompute, OfAFunctionThatResizesABufferPutsTheOthersBack) {
  struct Case {
    int resizes;  // in this run
    int throws;
    const char* text;
  };
  constexpr const char* kResized = "had 12 bytes and now has 400";
  for (const Case& c : {Case{1, 2, kResized}, Case{1, 1, "its own error"}, Case{0, 2, kResized}}) {
    SCOPED_TRACE(c.resizes + c.throws);
    at::Tensor before = ::torch::zeros({2});
    at::Tensor sized = ::torch::zeros({3});
    at::Tensor after = ::torch::zeros({4});
    int runs = 0;
    const auto work = [&](const at::Tensor& in) {
      for (at::Tensor* const buffer : {&before, &sized, &after}) { *buffer += 1; }
      if (runs == c.resizes) { sized.resize_({100}); }
      if (runs++ == c.throws) { throw ContractError{"its own error"}; }
      return in * 2;
    };
    const at::Tensor x = ::torch::ones({3}).set_requires_grad(true);
    const at::Tensor y = run_recomputed(work, x).sum();
    try {
      y.backward();
      ADD_FAILURE() << "no error";
    } catch (const ContractError& error) { EXPECT_THAT(error.what(), HasSubstr(c.text)); }
    EXPECT_TRUE(before.equal(::torch::ones({2}))) << before;
    EXPECT_TRUE(after.equal(::torch::ones({4}))) << after;
  }
}

TEST(TorchRecompute, NamesUnsupportedUses) {
  const at::Tensor x = ::torch::ones({2, 3}).set_requires_grad(true);
  int runs = 0;
  const auto squared = [](const Tensors& in) -> Tensors { return {in[0] * in[0]}; };
  struct Case {
    const char* text;
    std::function<void()> call;
  };
  const std::vector<Case> cases{
      {"input 1 of a recomputed function is undefined",
       [&] { static_cast<void>(tessera::torch::recompute(squared, {x, at::Tensor{}})); }},
      {"returns tensor 0 of 1 undefined",
       [&] {
         static_cast<void>(tessera::torch::recompute(
             [](const Tensors&) -> Tensors { return {at::Tensor{}}; }, {x}));
       }},
      {"writes to its input 0",
       [&] {
         static_cast<void>(tessera::torch::recompute(
             [](const Tensors& in) -> Tensors { return {in[0].mul_(2) + 1}; }, {x * 1}));
       }},
      {"returns [1, 3] Float in the backward pass, but returned [2, 3] Float before",
       [&] {
         tessera::torch::recompute(
             [&](const Tensors& in) -> Tensors { return {in[0].slice(0, runs++) * 2}; }, {x})[0]
             .sum()
             .backward();
       }},
      {"create_graph",
       [&] {
         static_cast<void>(::torch::autograd::grad(
             {tessera::torch::recompute(squared, {x})[0].sum()}, {x}, {}, true, true));
       }},
      {"not autograd::grad",
       [&] {
         static_cast<void>(
             ::torch::autograd::grad({tessera::torch::recompute(squared, {x})[0].sum()}, {x}));
       }},
  };
  for (const Case& c : cases) {
    try {
      c.call();
      ADD_FAILURE() << "no error: " << c.text;
    } catch (const ContractError& error) { EXPECT_THAT(error.what(), HasSubstr(c.text)); }
  }
}

}  // namespace
}  // namespace tessera::torch_recompute_test

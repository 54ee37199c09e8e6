// A block and its sublayers against the float64 reference.
#include "nn/one_unit.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/block.hpp"
#include "tessera/nn/causal_self_attention.hpp"
#include "tessera/nn/mlp.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::sublayers_test {
namespace {

using reference::Matrix;
using reference::Tensors;
using test::expect_close;
using test::floats;
using test::kHeads;
using test::kHidden;
using test::kRows;
using test::kShape;
using test::matrix;
using test::on_one_rank;
using test::OneUnit;
using test::random_matrix;
using test::room;
using test::without_prefix;

TEST(MLP, MatchesTheReference) {
  for (const MLPKind kind : {MLPKind::gelu_tanh, MLPKind::gelu}) {
    const Tensors weights =
        test::merged({test::linear_weights("mlp.c_fc", kHidden, 4 * kHidden, 1),
                      test::linear_weights("mlp.c_proj", 4 * kHidden, kHidden, 3)});
    const reference::SubLayer at{weights, "mlp", kShape, kHeads, kind};
    const Matrix x = random_matrix(kRows, kHidden, 5);
    const Matrix dy = random_matrix(kRows, kHidden, 6);
    Tensors gradients;
    const Matrix expected_dx = reference::mlp_backward(at, x, dy, gradients);
    on_one_rank([&](World& world) {
      const MLP mlp("mlp", {.hidden = kHidden, .heads = kHeads, .mlp = kind});
      OneUnit unit(world, mlp.parameters(), weights);
      const std::vector<float> x32 = floats(x);
      const std::vector<float> dy32 = floats(dy);
      std::vector<float> wide = room(kRows * 4 * kHidden);
      std::vector<float> activated = room(kRows * 4 * kHidden);
      std::vector<float> scratch = room(kRows * 4 * kHidden);
      std::vector<float> y = room(kRows * kHidden);
      std::vector<float> dx = room(kRows * kHidden);
      const MLP::Saved saved{x32.data(), wide.data(), activated.data()};
      unit.run([&](const ForwardScope& scope) { mlp.forward(scope, saved, y.data(), kRows); },
               [&](const BackwardScope& scope) {
                 mlp.backward(scope, saved, {dy32.data(), dx.data(), scratch.data()}, kRows);
               });
      expect_close(matrix(y, kRows), reference::mlp(at, x), test::kLayerTolerance, "y");
      expect_close(matrix(dx, kRows), expected_dx, test::kLayerTolerance, "dx");
      expect_close(unit.gradients(), gradients, test::kLayerTolerance);
    });
  }
}

TEST(CausalSelfAttention, MatchesTheReference) {
  const Tensors weights =
      test::merged({test::linear_weights("attn.c_attn", kHidden, 3 * kHidden, 1),
                    test::linear_weights("attn.c_proj", kHidden, kHidden, 3)});
  const reference::SubLayer at{weights, "attn", kShape, kHeads};
  const Matrix x = random_matrix(kRows, kHidden, 5);
  const Matrix dy = random_matrix(kRows, kHidden, 6);
  Tensors gradients;
  const Matrix expected_dx = reference::self_attention_backward(at, x, dy, gradients);
  on_one_rank([&](World& world) {
    const CausalSelfAttention attn(world, "attn", {.hidden = kHidden, .heads = kHeads});
    OneUnit unit(world, attn.parameters(), weights);
    const std::vector<float> x32 = floats(x);
    const std::vector<float> dy32 = floats(dy);
    std::vector<float> qkv = room(kRows * 3 * kHidden);
    std::vector<float> mixed = room(kRows * kHidden);
    std::vector<float> log_sum_exp = room(kRows * kHeads);
    std::vector<float> workspace = room(attn.workspace_elems(kShape, DType::fp32));
    std::vector<float> scratch = room(kRows * 4 * kHidden);
    std::vector<float> y = room(kRows * kHidden);
    std::vector<float> dx = room(kRows * kHidden);
    const CausalSelfAttention::Saved saved{x32.data(), qkv.data(), mixed.data(), log_sum_exp.data(),
                                           workspace.data()};
    unit.run([&](const ForwardScope& scope) { attn.forward(scope, saved, y.data(), kShape); },
             [&](const BackwardScope& scope) {
               attn.backward(scope, saved, {dy32.data(), dx.data(), scratch.data()}, kShape);
             });
    expect_close(matrix(y, kRows), reference::self_attention(at, x), test::kLayerTolerance, "y");
    expect_close(matrix(dx, kRows), expected_dx, test::kLayerTolerance, "dx");
    expect_close(unit.gradients(), gradients, test::kLayerTolerance);
  });
}

// The kernel gives each thread its own part.
TEST(CausalSelfAttention, AsksForAWorkspaceOfAllThreads) {
  const auto elems = [](int threads) {
    std::int64_t all = 0;
    const auto ask = [&](World& world) {
      all = CausalSelfAttention(world, "attn", {.hidden = 36, .heads = 3})
                .workspace_elems({.batch = 2, .seq = 50}, DType::fp32);
    };
    run_ranks(1, ask, {.threads = threads});
    return all;
  };
  EXPECT_EQ(elems(4), 4 * elems(1));
}

TEST(CausalSelfAttention, RefusesHeadsThatDoNotDivideTheHiddenSize) {
  on_one_rank([](World& world) {
    const DecoderConfig config{.hidden = 36, .heads = 5};
    EXPECT_THROW(CausalSelfAttention(world, "attn", config), ContractError);
  });
}

// Memory of a block whose input is `x`, and the Saved that points into it.
struct BlockMemory {
  explicit BlockMemory(const float* x, std::int64_t workspace_elems)
      : normed_1{room(kValues)},
        middle{room(kValues)},
        normed_2{room(kValues)},
        qkv{room(3 * kValues)},
        mixed{room(kValues)},
        log_sum_exp{room(kRows * kHeads)},
        workspace{room(workspace_elems)},
        wide{room(4 * kValues)},
        activated{room(4 * kValues)},
        statistics{room(4 * kRows)} {
    float* s = statistics.data();
    saved = {
        .ln_1 = {x, s, s + kRows},
        .attn = {normed_1.data(), qkv.data(), mixed.data(), log_sum_exp.data(), workspace.data()},
        .ln_2 = {middle.data(), s + 2 * kRows, s + 3 * kRows},
        .mlp = {normed_2.data(), wide.data(), activated.data()},
        .normed_1 = normed_1.data(),
        .middle = middle.data(),
        .normed_2 = normed_2.data()};
  }

  static constexpr std::int64_t kValues = kRows * kHidden;
  std::vector<float> normed_1, middle, normed_2, qkv, mixed, log_sum_exp, workspace, wide,
      activated, statistics;
  Block::Saved saved{};
};

TEST(Block, MatchesTheReferenceAndTurnsTheStreamsGradientInPlace) {
  const DecoderConfig config{
      .layers = 1, .hidden = kHidden, .heads = kHeads, .vocab = 2, .seq = 17};
  Tensors weights = test::random_like(reference::gpt_zeros(config), 1, 0.3);
  std::erase_if(weights, [](const auto& entry) { return !entry.first.starts_with("h.0."); });
  const reference::SubLayer at{weights, "h.0", kShape, kHeads};
  const Matrix x = random_matrix(kRows, kHidden, 5);
  const Matrix dy = random_matrix(kRows, kHidden, 6);
  Tensors gradients;
  const Matrix expected_dx = reference::block_backward(at, x, dy, gradients);
  const Tensors unit_weights = without_prefix(weights, 4);
  on_one_rank([&](World& world) {
    const Block block(world, {.hidden = kHidden, .heads = kHeads});
    OneUnit unit(world, block.parameters(), unit_weights);
    const std::vector<float> x32 = floats(x);
    BlockMemory memory(x32.data(), block.workspace_elems(kShape, DType::fp32));
    std::vector<float> y = room(kRows * kHidden);
    std::vector<float> stream = floats(dy);
    std::vector<float> scratch = room(5 * kRows * kHidden);
    unit.run(
        [&](const ForwardScope& scope) { block.forward(scope, memory.saved, y.data(), kShape); },
        [&](const BackwardScope& scope) {
          block.backward(scope, memory.saved, stream.data(), scratch.data(), kShape);
        });
    expect_close(matrix(y, kRows), reference::block(at, x), test::kLayerTolerance, "y");
    expect_close(matrix(stream, kRows), expected_dx, test::kLayerTolerance, "dx");
    expect_close(unit.gradients(), without_prefix(gradients, 4), test::kLayerTolerance);
  });
}

}  // namespace
}  // namespace tessera::nn::sublayers_test

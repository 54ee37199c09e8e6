// The simple layers against the float64 reference.
#include "nn/one_unit.hpp"
#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/nn/linear.hpp"
#include "tessera/nn/norm.hpp"

namespace tessera::nn::layers_test {
namespace {

using reference::Matrix;
using reference::Tensors;
using test::expect_close;
using test::floats;
using test::kHidden;
using test::kRows;
using test::matrix;
using test::on_one_rank;
using test::OneUnit;
using test::random_matrix;
using test::room;

TEST(Linear, MatchesTheReference) {
  const Tensors weights = test::linear_weights("fc", 36, 29, 1);
  const Matrix x = random_matrix(kRows, 36, 3);
  const Matrix dy = random_matrix(kRows, 29, 4);
  const auto expected = reference::linear_backward(x, weights.at("fc.weight"), dy);
  on_one_rank([&](World& world) {
    const Linear fc("fc", 36, 29);
    OneUnit unit(world, fc.parameters(), weights);
    const std::vector<float> x32 = floats(x);
    std::vector<float> y = room(kRows * 29);
    std::vector<float> dx = room(kRows * 36);
    unit.run([&](const ForwardScope& scope) { fc.forward(scope, x32.data(), y.data(), kRows); },
             [&](const BackwardScope& scope) {
               fc.backward(scope, x32.data(), floats(dy).data(), dx.data(), kRows);
             });
    expect_close(matrix(y, kRows),
                 reference::linear(x, weights.at("fc.weight"), weights.at("fc.bias")),
                 test::kLayerTolerance, "y");
    expect_close(matrix(dx, kRows), expected.x, test::kLayerTolerance, "dx");
    expect_close(unit.gradients(), {{"fc.weight", expected.weight}, {"fc.bias", expected.bias}},
                 test::kLayerTolerance);
  });
}

TEST(Linear, AFrozenWeightGetsNoGradientAndTheRestIsAsBefore) {
  const Tensors weights = test::linear_weights("fc", 36, 29, 1);
  const Matrix x = random_matrix(kRows, 36, 3);
  const Matrix dy = random_matrix(kRows, 29, 4);
  const auto expected = reference::linear_backward(x, weights.at("fc.weight"), dy);
  on_one_rank([&](World& world) {
    const Linear fc("fc", 36, 29);
    std::vector<ParameterSpec> parameters = fc.parameters();
    parameters[0].trainable = false;
    OneUnit unit(world, parameters, weights);
    const std::vector<float> x32 = floats(x);
    std::vector<float> y = room(kRows * 29);
    std::vector<float> dx = room(kRows * 36);
    unit.run([&](const ForwardScope& scope) { fc.forward(scope, x32.data(), y.data(), kRows); },
             [&](const BackwardScope& scope) {
               EXPECT_FALSE(scope.has_grad("fc.weight"));
               fc.backward(scope, x32.data(), floats(dy).data(), dx.data(), kRows);
             });
    expect_close(matrix(dx, kRows), expected.x, test::kLayerTolerance, "dx");
    expect_close(unit.gradients().at("fc.bias"), expected.bias, test::kLayerTolerance, "bias");
  });
}

TEST(Norm, OfALayerNormMatchesTheReferenceAndAddsToTheResidualsGradient) {
  const Tensors weights{{"ln.weight", random_matrix(1, kHidden, 1)},
                        {"ln.bias", random_matrix(1, kHidden, 2)}};
  const Matrix x = random_matrix(kRows, kHidden, 3).array() + 5.0;
  const Matrix dy = random_matrix(kRows, kHidden, 4);
  const Matrix residual = random_matrix(kRows, kHidden, 5);
  // The layer's input after rounding.
  const Matrix x_exact = matrix(floats(x), kRows);
  const auto expected = reference::layer_norm_backward(x_exact, weights.at("ln.weight"), dy);
  on_one_rank([&](World& world) {
    const Norm ln("ln", kHidden);
    OneUnit unit(world, ln.parameters(), weights);
    const std::vector<float> x32 = floats(x);
    std::vector<float> mean = room(kRows);
    std::vector<float> inverse_std = room(kRows);
    std::vector<float> y = room(kRows * kHidden);
    std::vector<float> dx = floats(residual);
    const Norm::Saved saved{x32.data(), mean.data(), inverse_std.data()};
    unit.run([&](const ForwardScope& scope) { ln.forward(scope, saved, y.data(), kRows); },
             [&](const BackwardScope& scope) {
               ln.backward(scope, saved, floats(dy).data(), dx.data(), kRows);
             });
    expect_close(matrix(y, kRows),
                 reference::layer_norm(x_exact, weights.at("ln.weight"), weights.at("ln.bias")),
                 test::kLayerTolerance, "y");
    expect_close(matrix(dx, kRows), residual + expected.x, test::kLayerTolerance, "dx");
    expect_close(unit.gradients(), {{"ln.weight", expected.weight}, {"ln.bias", expected.bias}},
                 test::kLayerTolerance);
  });
}

TEST(Embedding, ForwardLooksUpRowsAndBackwardAddsToThem) {
  constexpr BatchShape kTwo{.batch = 2, .seq = 3};
  const std::vector<std::int32_t> tokens{4, 0, 4, 2, 4, 1};
  const Tensors weights{{"wte.weight", random_matrix(5, 7, 1)},
                        {"wpe.weight", random_matrix(3, 7, 2)}};
  const Matrix dy = random_matrix(6, 7, 3);
  Matrix expected(6, 7);
  Tensors gradients{{"wte.weight", Matrix::Zero(5, 7)}, {"wpe.weight", Matrix::Zero(3, 7)}};
  for (Eigen::Index r = 0; r < 6; ++r) {
    const std::int32_t token = tokens[static_cast<std::size_t>(r)];
    expected.row(r) = weights.at("wte.weight").row(token) + weights.at("wpe.weight").row(r % 3);
    gradients.at("wte.weight").row(token) += dy.row(r);
    gradients.at("wpe.weight").row(r % 3) += dy.row(r);
  }
  on_one_rank([&](World& world) {
    const Embedding embedding(world, {.vocab = 5, .positions = 3, .hidden = 7});
    OneUnit unit(world, embedding.parameters(), weights);
    std::vector<float> y = room(6 * 7);
    unit.run(
        [&](const ForwardScope& scope) { embedding.forward(scope, tokens.data(), y.data(), kTwo); },
        [&](const BackwardScope& scope) {
          embedding.backward(scope, tokens.data(), floats(dy).data(), kTwo);
        });
    expect_close(matrix(y, 6), expected, test::kLayerTolerance, "y");
    expect_close(unit.gradients(), gradients, test::kLayerTolerance);
  });
}

TEST(Embedding, HeadIsTheTokenTableTransposed) {
  const Tensors weights{{"wte.weight", random_matrix(101, kHidden, 1)},
                        {"wpe.weight", random_matrix(3, kHidden, 2)}};
  const Matrix& table = weights.at("wte.weight");
  const Matrix x = random_matrix(kRows, kHidden, 3);
  const Matrix dlogits = random_matrix(kRows, 101, 4);
  on_one_rank([&](World& world) {
    const Embedding embedding(world, {.vocab = 101, .positions = 3, .hidden = kHidden});
    OneUnit unit(world, embedding.parameters(), weights);
    const std::vector<float> x32 = floats(x);
    std::vector<float> logits = room(kRows * 101);
    std::vector<float> dx = room(kRows * kHidden);
    unit.run(
        [&](const ForwardScope& scope) { embedding.head(scope, x32.data(), logits.data(), kRows); },
        [&](const BackwardScope& scope) {
          embedding.head_backward(scope, x32.data(), floats(dlogits).data(), dx.data(), kRows);
        });
    expect_close(matrix(logits, kRows), x * table.transpose(), test::kLayerTolerance, "logits");
    expect_close(matrix(dx, kRows), dlogits * table, test::kLayerTolerance, "dx");
    const Tensors gradients = unit.gradients();
    expect_close(gradients.at("wte.weight"), dlogits.transpose() * x, test::kLayerTolerance, "wte");
    EXPECT_EQ(gradients.at("wpe.weight").norm(), 0.0);
  });
}

TEST(CrossEntropy, AddsTheMeanAndTurnsTheLogitsIntoItsGradient) {
  const Matrix logits = random_matrix(kRows, 101, 1, 3.0);
  const std::vector<std::int32_t> targets = test::random_tokens(kRows, 101, 2);
  on_one_rank([&](World& world) {
    const CrossEntropy one_of_four(world, 101, /*micro_batches=*/4);
    std::vector<float> logits32 = floats(logits);
    double loss = 10.0;
    one_of_four.forward(logits32.data(), targets.data(), &loss, kRows);
    // The engine divides gradients by the number of micro-batches; the layer must divide the loss.
    const double expected = reference::cross_entropy(logits, targets) / 4;
    const double bound = test::chain_error(test::sum_roundings(test::kClasses) + 8);
    EXPECT_NEAR(loss, 10.0 + expected, bound * expected);
    expect_close(matrix(logits32, kRows), reference::cross_entropy_backward(logits, targets),
                 test::kLayerTolerance, "dlogits");
  });
}

}  // namespace
}  // namespace tessera::nn::layers_test

// Documents packed into sequences, and targets that do not count.
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "nn/nn_support.hpp"
#include "support/decoder_configs.hpp"
#include "support/gpt_rounding.hpp"
#include "support/sample_documents.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::packed_documents_test {
namespace {

using test::Tensors;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kSeq = 19;
constexpr std::int64_t kSamples = 3;
constexpr DecoderConfig kGPT{.layers = 2, .hidden = 36, .heads = 3, .vocab = 41, .seq = kSeq};

test::NamedConfig config_of(std::size_t index) {
  const auto configs = test::decoder_configs(2, 36, 41, kSeq);
  return index < configs.size() ? configs[index] : test::NamedConfig{"gpt2", kGPT};
}

struct Batch {
  Tokens inputs, targets, first_keys;
  std::int64_t counted = 0;
  [[nodiscard]] MicroBatch view() const { return {inputs, targets, first_keys}; }
};

/// Sequences of several documents.
Batch packed_batch() {
  Batch batch{
      test::random_tokens(kSamples * kSeq, 41, 1), test::random_tokens(kSamples * kSeq, 41, 2), {}};
  batch.first_keys = test::documents_of({.packed = true, .masked = true}, batch.targets, kSeq, 0);
  batch.counted = std::ssize(batch.targets) - std::ranges::count(batch.targets, kIgnoredTarget);
  return batch;
}

/// Each document at the beginning of a sequence of its own. What follows it does not count.
Batch apart(const Batch& packed) {
  Batch batch;
  for (std::size_t at = 0; at < packed.inputs.size(); ++at) {
    const auto place = static_cast<std::int32_t>(at % kSeq);
    const std::int32_t in_document = place - packed.first_keys[at];
    if (in_document == 0) {
      batch.inputs.resize(batch.inputs.size() + kSeq, 7);
      batch.targets.resize(batch.targets.size() + kSeq, kIgnoredTarget);
    }
    const std::size_t to = batch.inputs.size() - kSeq + static_cast<std::size_t>(in_document);
    batch.inputs[to] = packed.inputs[at];
    batch.targets[to] = packed.targets[at];
  }
  return batch;
}

struct Step {
  double loss = 0.0, norm = 0.0, evaluated = 0.0;
  Tensors gradients, parameters;
};

Step train(const DecoderConfig& config, const Batch& batch, bool packed) {
  Step step;
  run_ranks(1, [&](World& world) {
    auto net = shard(Decoder(config, {.packed = packed, .masked = true}), world);
    net.materialize(5);
    net.optimize_with(SGD{.lr = 0.5F});
    net.module().reserve(std::ssize(batch.inputs) / kSeq);
    step.evaluated = net.module().evaluate(batch.view());
    net.forward_backward(batch.view());
    step.gradients = test::state_of(net.model(), StateTensor::gradients, gpt2_weight_name);
    // Means over all tokens until the step divides by those that count.
    for (auto& [name, gradient] : step.gradients) {
      gradient *= static_cast<double>(batch.inputs.size()) / static_cast<double>(batch.counted);
    }
    net.step();
    step.loss = net.report().loss;
    step.norm = net.report().grad_norm;
    step.parameters = test::state_of(net.model(), StateTensor::parameters, gpt2_weight_name);
  });
  return step;
}

class PackedDocuments : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Models, PackedDocuments, testing::Range(std::size_t{0}, std::size_t{7}),
                         [](const auto& tested) { return config_of(tested.param).name; });

TEST_P(PackedDocuments, TrainAsEachDocumentInASequenceOfItsOwn) {
  const DecoderConfig config = config_of(GetParam()).config;
  const Batch packed = packed_batch();
  Batch alone = apart(packed);
  alone.counted = packed.counted;
  ASSERT_GT(alone.inputs.size(), packed.inputs.size());
  ASSERT_LT(packed.counted, std::ssize(packed.inputs) * 3 / 4);
  const Step one = train(config, packed, true);
  const Step other = train(config, alone, false);
  const auto within = test::between_runs(config, kSamples * kSeq);
  EXPECT_NEAR(one.loss, other.loss, within.loss * other.loss);
  EXPECT_NEAR(one.norm, other.norm, within.gradient * other.norm);
  EXPECT_NEAR(one.evaluated, one.loss, within.loss * one.loss);
  EXPECT_NEAR(other.evaluated, other.loss, within.loss * other.loss);
  test::expect_close(one.gradients, other.gradients, within.gradient);
  test::expect_close(one.parameters, other.parameters, within.gradient);
}

TEST_P(PackedDocuments, OneDocumentASequenceHasTheBitsOfSequencesThatAreNotPacked) {
  const DecoderConfig config = config_of(GetParam()).config;
  Batch batch{test::random_tokens(2 * kSeq, 41, 1), test::random_tokens(2 * kSeq, 41, 2), {}};
  batch.counted = std::ssize(batch.inputs);
  const Step plain = train(config, batch, false);
  const Step said_nothing = train(config, batch, true);
  batch.first_keys.assign(batch.inputs.size(), 0);
  const Step one_document = train(config, batch, true);
  for (const Step* step : {&said_nothing, &one_document}) {
    EXPECT_EQ(step->loss, plain.loss);
    EXPECT_EQ(step->evaluated, plain.evaluated);
    EXPECT_EQ(step->parameters, plain.parameters);
  }
}

/// The loss, norm and first gradients of a step that is divided over ranks and micro-batches.
Step divided(int ranks, int accumulate, DType compute) {
  Step step;
  constexpr std::int64_t kAll = 12;  // sequences
  run_ranks(ranks, [&](World& world) {
    auto net = shard(Decoder(kGPT, {.masked = true}), world,
                     {.strategy = Strategy::zero2, .compute = compute, .accumulate = accumulate});
    net.materialize(5);
    net.optimize_with(SGD{.lr = 0.5F});
    const std::int64_t batch = kAll / (std::int64_t{ranks} * accumulate);
    for (int micro = 0; micro < accumulate; ++micro) {
      const std::int64_t first = (micro * ranks + world.rank()) * batch;
      Tokens inputs, targets;
      for (std::int64_t sample = first; sample < first + batch; ++sample) {
        const auto seed = static_cast<std::uint32_t>(sample);
        const Tokens in = test::random_tokens(kSeq, 41, seed);
        const Tokens to = test::random_tokens(kSeq, 41, 100 + seed);
        inputs.insert(inputs.end(), in.begin(), in.end());
        targets.insert(targets.end(), to.begin(), to.end());
      }
      static_cast<void>(test::documents_of({.masked = true}, targets, kSeq, first));
      net.forward_backward(inputs, targets);
    }
    net.step();
    Tensors parameters = test::state_of(net.model(), StateTensor::parameters, gpt2_weight_name);
    if (world.rank() != 0) { return; }
    step.loss = net.report().loss;
    step.norm = net.report().grad_norm;
    step.parameters = std::move(parameters);
  });
  return step;
}

// One sum of counts: samples count between none and all of their targets, so a mean of means would
// be far off.
TEST(MaskedTargets, MeansAreOverAllRanksAndMicroBatchesTogether) {
  const Step one = divided(1, 1, DType::fp32);
  const auto within = test::between_runs(kGPT, 12 * kSeq);
  for (const auto& [ranks, accumulate] : {std::pair{1, 6}, {2, 1}, {3, 2}, {4, 3}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << accumulate << " micro-batches");
    const Step step = divided(ranks, accumulate, DType::fp32);
    EXPECT_NEAR(step.loss, one.loss, within.loss * one.loss);
    EXPECT_NEAR(step.norm, one.norm, within.gradient * one.norm);
    test::expect_close(step.parameters, one.parameters, within.gradient);
  }
}

TEST(MaskedTargets, ALossScaleDividesOutAgain) {
  const Step one = divided(2, 2, DType::fp32);
  const Step scaled = divided(2, 2, DType::fp16);
  EXPECT_NEAR(scaled.loss, one.loss, 0x1p-8 * one.loss);  // fp16: 2^-11 a rounding
  EXPECT_NEAR(scaled.norm, one.norm, 0x1p-5 * one.norm);
}

TEST(MaskedTargets, AStepWithoutOneHasNoLossAndNoGradient) {
  run_ranks(2, [](World& world) {
    auto net = shard(Decoder(kGPT, {.masked = true}), world, {.strategy = Strategy::zero3});
    net.materialize(5);
    net.optimize_with(SGD{.lr = 0.5F}, {.clip_norm = 1.0F});
    const Tensors before = test::state_of(net.model(), StateTensor::parameters, gpt2_weight_name);
    const Tokens inputs = test::random_tokens(kSeq, 41, 1);
    const Tokens none(kSeq, kIgnoredTarget);
    net.forward_backward(inputs, none);
    net.step();
    EXPECT_EQ(net.report().loss, 0.0);
    EXPECT_EQ(net.report().grad_norm, 0.0);
    EXPECT_FALSE(net.report().skipped);
    EXPECT_EQ(net.module().evaluate(inputs, none), 0.0);
    EXPECT_EQ(test::state_of(net.model(), StateTensor::parameters, gpt2_weight_name), before);
  });
}

template <class Exception>
void refused(const DecoderOptions& options, const Batch& batch, const char* text) {
  run_ranks(1, [&](World& world) {
    auto net = shard(Decoder(kGPT, options), world);
    net.materialize(5);
    net.optimize_with(SGD{});
    try {
      net.forward_backward(batch.view());
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Exception& error) { EXPECT_THAT(error.what(), HasSubstr(text)); }
  });
}

TEST(PackedDocuments, WhatDoesNotFitIsRefused) {
  const Batch good = packed_batch();
  const DecoderOptions both{.packed = true, .masked = true};
  refused<ContractError>({.masked = true}, good, "first_keys without DecoderOptions::packed");
  refused<ConfigError>({.packed = true}, good, "DecoderOptions::masked lets targets be ignored");
  Batch bad = good;
  bad.first_keys.pop_back();
  refused<ContractError>(both, bad, "as many first_keys as inputs");
  bad = good;
  bad.first_keys[4] = 5;
  refused<ConfigError>(both, bad, "first_keys[4] is 5: the document of token 4");
  bad = good;
  bad.first_keys[kSeq] = -1;
  refused<ConfigError>(both, bad, "first_keys[19] is -1: the document of token 0");
  bad = good;
  bad.first_keys[5] = bad.first_keys[6] = 5;
  bad.first_keys[7] = 4;
  refused<ConfigError>(both, bad,
                       "first_keys[7] is 4: the document of token 7 of a sequence begins "
                       "at 5 to 7");
  bad = good;
  bad.inputs[3] = kIgnoredTarget;
  refused<ConfigError>(both, bad, "inputs[3] is token -100");
  bad = good;
  bad.targets[3] = -1;
  refused<ConfigError>(both, bad, "targets[3] is token -1");
}

}  // namespace
}  // namespace tessera::nn::packed_documents_test

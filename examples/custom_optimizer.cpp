// A custom optimizer that works with any strategy: cautious sign descent. It keeps one moment, half
// of AdamW's state, and moves every weight by the rate in the direction of the moment's sign. A
// weight waits while the gradient points the other way (the mask of "cautious" optimizers, Liang et
// al. 2024).
//
//   custom_optimizer [strategy] [ranks]
//
// The rule gets pieces of parameters, cut as the strategy cuts them. It treats every element alike,
// so the cut changes no bit: the program compares the result with the same training on one rank,
// without a cut, and exits with 1 if a bit differs. Every rank sees the same samples, so that the
// average of 1, 2 or 4 ranks' gradients is the same number.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

constexpr std::int64_t kInputs = 24;
constexpr std::int64_t kOutputs = 10;
constexpr int kSamples = 32;
constexpr int kSteps = 150;

/// `beta` is the decay of the moment.
tessera::CustomOptimizer cautious_sign(float lr, float beta, float weight_decay) {
  const auto update = [beta](const tessera::ShardUpdate& piece) {
    if (*piece.apply == 0) { return; }  // the gradient is not finite: the step is skipped
    const std::span<float> moment = piece.states[0];
    for (std::size_t i = 0; i < piece.weights.size(); ++i) {
      const float g = piece.gradient_at(i);  // averaged over ranks
      moment[i] = beta * moment[i] + (1.0F - beta) * g;
      const float direction = moment[i] > 0.0F ? 1.0F : -1.0F;
      const float cautious = moment[i] * g > 0.0F ? direction : 0.0F;
      piece.weights[i] -= piece.lr * (cautious + piece.weight_decay * piece.weights[i]);
    }
  };
  return {.name = "cautious sign",
          .states = 1,
          .lr = lr,
          .weight_decay = weight_decay,
          .update = update};
}

struct Outcome {
  double first_loss = 0.0;
  double last_loss = 0.0;
  std::size_t optimizer_bytes = 0;
  std::vector<float> weights;
};

/// Adds the gradient of 0.5 |W x + b - y|^2 over samples drawn from a hidden map. Returns the mean
/// loss.
double fit(tessera::ShardedModel& model, tessera::Unit unit, int step) {
  std::vector<float> error(kOutputs), x(kInputs), truth(kOutputs * kInputs);
  tessera::init::fill_normal(/*seed=*/9, 0, 0, 0.5F, truth);
  double loss = 0.0;
  { const auto p = model.forward(unit); }  // gathered again in backward, which does all the work
  const auto g = model.backward(unit);
  const float* const weight = g["weight"];
  const float* const bias = g["bias"];
  float* const dweight = g.grad("weight");
  float* const dbias = g.grad("bias");
  for (int sample = 0; sample < kSamples; ++sample) {
    tessera::init::fill_normal(/*seed=*/8, static_cast<std::uint32_t>(step * kSamples + sample), 0,
                               1.0F, x);
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      float y = bias[o];
      for (std::int64_t i = 0; i < kInputs; ++i) {
        const auto at = static_cast<std::size_t>(o * kInputs + i);
        y += (weight[at] - truth[at]) * x[static_cast<std::size_t>(i)];
      }
      loss += 0.5 * static_cast<double>(y) * static_cast<double>(y) / kSamples;
      dbias[o] += y / kSamples;
      for (std::int64_t i = 0; i < kInputs; ++i) {
        dweight[o * kInputs + i] += y * x[static_cast<std::size_t>(i)] / kSamples;
      }
    }
  }
  return loss;
}

Outcome train(tessera::Strategy strategy, int ranks) {
  Outcome outcome;
  tessera::run_ranks(ranks, [&](tessera::World& world) {
    tessera::ShardedModel model{world, {.strategy = strategy}};
    const tessera::Unit unit =
        model.add_unit("map", {{"weight", {kOutputs, kInputs}}, {"bias", {kOutputs}}});
    model.materialize(tessera::init::normal(/*seed=*/1, 0.1F));
    // Biases learn at half the rate.
    model.optimize_with(
        cautious_sign(0.01F, 0.9F, 0.01F),
        {.groups = {{.name = "biases",
                     .contains = [](const tessera::ParameterInfo& p) { return p.name == "bias"; },
                     .lr_scale = 0.5F}}});
    double first = 0.0;
    for (int step = 0; step < kSteps; ++step) {
      model.set_learning_rate(0.01F * static_cast<float>(kSteps - step) / kSteps);
      const double loss = fit(model, unit, step);
      model.step(&loss);
      if (step == 0) { first = model.report().loss; }
    }
    std::vector<float> weights;
    model.export_state(tessera::StateTensor::parameters,
                       [&](const tessera::ParameterInfo&, std::span<const float> values) {
                         weights.insert(weights.end(), values.begin(), values.end());
                       });
    if (world.rank() == 0) {
      outcome = {first, model.report().loss, model.state_bytes().optimizer, std::move(weights)};
    }
  });
  return outcome;
}

}  // namespace

int main(int argc, char** argv) try {
  const tessera::Strategy strategy = tessera::parse_strategy(argc > 1 ? argv[1] : "zero3");
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 4;
  const Outcome sharded = train(strategy, ranks);
  const Outcome whole = train(tessera::Strategy::ddp, 1);
  const std::string name{tessera::to_string(strategy)};
  std::printf("cautious sign descent, %s on %d ranks: loss %.4f -> %.4f in %d steps\n",
              name.c_str(), ranks, sharded.first_loss, sharded.last_loss, kSteps);
  std::printf("optimizer state: %zu bytes on rank 0, %zu on one rank alone\n",
              sharded.optimizer_bytes, whole.optimizer_bytes);
  const bool equal = sharded.weights.size() == whole.weights.size() &&
                     std::memcmp(sharded.weights.data(), whole.weights.data(),
                                 whole.weights.size() * sizeof(float)) == 0;
  std::printf("weights %s those of one rank, to the bit\n", equal ? "equal" : "DIFFER from");
  return equal && sharded.last_loss < 0.1 * sharded.first_loss ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "custom_optimizer: %s\n", error.what());
  return 1;
}

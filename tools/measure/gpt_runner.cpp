#include "tools/measure/gpt_runner.hpp"

#include "tessera/kernels/matmul.hpp"
#include "tools/measure/arrays.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;
using kernels::Transpose;
using kernels::Write;

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab,
                                        std::uint32_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::uint32_t state = seed; std::ssize(tokens) < count;) {
    state = state * 1'664'525U + 1'013'904'223U;
    tokens.push_back(static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocab)));
  }
  return tokens;
}

}  // namespace

RunnerOptions runner_options(const StepOptions& options, Strategy strategy) {
  RunnerOptions run;
  run.model.strategy = strategy;
  if (strategy == Strategy::hybrid) { run.model.shard_group = options.shard_group; }
  run.model.prefetch = options.prefetch;
  run.model.compute = options.precision;
  return run;
}

GptRunner::GptRunner(World& world, const StepOptions& options, const RunnerOptions& run)
    : world_{world}, gpt_{shard(nn::Decoder(options.model, run.gpt), world, run.model)} {
  const std::int64_t tokens = options.batch * options.model.seq;
  const auto seed = static_cast<std::uint32_t>(world.rank() + 1);
  inputs_ = random_tokens(tokens, options.model.vocab, seed);
  targets_ = random_tokens(tokens, options.model.vocab, seed + 1000);
  gpt_.materialize(1);
  gpt_.optimize_with(AdamW{}, run.optimizer);
  gpt_.module().reserve(options.batch);
}

void GptRunner::step() {
  gpt_.forward_backward(inputs_, targets_);
  gpt_.step();
}

double GptRunner::timed_step() {
  world_.barrier();
  const double begin = now();
  step();
  world_.barrier();
  return seconds_since(begin);
}

std::vector<std::unique_ptr<GptRunner>> make_runners(World& world, const StepOptions& options) {
  std::vector<std::unique_ptr<GptRunner>> runners;
  for (const Strategy strategy : options.strategies) {
    runners.push_back(std::make_unique<GptRunner>(world, options, strategy));
  }
  return runners;
}

struct ModelProducts::State {
  World& world;
  DType precision;
  std::vector<RoundedNoise> owned;
  std::vector<MatMul> products;

  Values array(DType dtype, std::int64_t elems) {
    const auto seed = static_cast<std::uint32_t>(owned.size() + 1);
    return owned.emplace_back(dtype, elems, seed).values();
  }

  // Adds a layer from `in` to `out` values per row: y = x w, dw += x' dy, dx = dy w'. Gradients of
  // weights are in fp32.
  void add_layer(std::int64_t rows, std::int64_t in, std::int64_t out) {
    const Values x = array(precision, rows * in);
    const Values w = array(precision, in * out);
    const Values y = array(precision, rows * out);
    const Values dw = array(DType::fp32, in * out);
    const Values dx = array(precision, rows * in);
    products.push_back({.a = x, .b = w, .c = y, .m = rows, .n = out, .k = in});
    products.push_back({.a = x,
                        .b = y,
                        .c = dw,
                        .m = in,
                        .n = out,
                        .k = rows,
                        .transpose_a = Transpose::yes,
                        .write = Write::add});
    products.push_back(
        {.a = y, .b = w, .c = dx, .m = rows, .n = in, .k = out, .transpose_b = Transpose::yes});
  }
};

ModelProducts::ModelProducts(World& world, const StepOptions& options)
    : state_{std::make_unique<State>(State{world, options.precision, {}, {}})} {
  const std::int64_t rows = options.batch * options.model.seq;
  const std::int64_t hidden = options.model.hidden;
  for (std::int64_t layer = 0; layer < options.model.layers; ++layer) {
    state_->add_layer(rows, hidden, 3 * hidden);
    state_->add_layer(rows, hidden, hidden);
    state_->add_layer(rows, hidden, 4 * hidden);
    state_->add_layer(rows, 4 * hidden, hidden);
  }
  state_->add_layer(rows, hidden, options.model.vocab);
}

ModelProducts::~ModelProducts() = default;

double ModelProducts::flops() const {
  double flops = 0;
  for (const MatMul& p : state_->products) {
    flops += 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
  }
  return flops;
}

void ModelProducts::run() {
  for (const MatMul& product : state_->products) {
    kernels::matmul(product, state_->world.compute_stream());
  }
}

}  // namespace tessera::bench

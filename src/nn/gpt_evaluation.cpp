#include <algorithm>
#include <utility>

#include "nn/gpt_state.hpp"
#include "tessera/base/error.hpp"

// A forward that keeps nothing: one layer after the other in the same memory.
namespace tessera::nn {
namespace {

/// `count` values that lie in device memory, on the host as fp32.
std::vector<float> read_floats(World& world, ConstValues values, std::size_t count) {
  const Stream stream = world.compute_stream();
  std::vector<float> floats(count);
  if (values.dtype == DType::fp32) {
    world.device().copy_out(floats.data(), values.data, count * sizeof(float), stream);
    stream.wait();
    return floats;
  }
  std::vector<std::uint16_t> halves(count);
  world.device().copy_out(halves.data(), values.data, count * sizeof(std::uint16_t), stream);
  stream.wait();
  std::ranges::transform(halves, floats.begin(), [&](std::uint16_t bits) {
    return values.dtype == DType::bf16 ? bfloat16{bits}.to_float() : float16{bits}.to_float();
  });
  return floats;
}

}  // namespace

void GPT::State::check_evaluation(const char* what) const {
  expects(model != nullptr, "GPT: not declared in a model yet");
  expects(!forward_done && micro_batch == 0, what);
}

void GPT::State::check_may_reserve(const char* what) const {
  expects(model->options().purpose == Purpose::inference, what);
}

double GPT::evaluate(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  State& s = *state_;
  s.check_call(inputs, targets);
  s.check_evaluation("GPT::evaluate: a step has begun; evaluate between steps");
  const BatchShape sequences{std::ssize(inputs) / s.config.seq, s.config.seq};
  if (s.shape.batch == 0) {
    s.check_may_reserve(
        "GPT::evaluate: a model for training has no batch yet; call reserve or forward first");
    reserve(sequences.batch);
  }
  expects(sequences.batch <= s.shape.batch, "GPT::evaluate: more sequences than are reserved");
  const auto evaluation = s.model->evaluate();
  const CountedMemory in_use =
      s.world().memory().occupy(Category::activations, s.at.evaluation.bytes, "evaluation");
  s.load(s.at.inputs, inputs);
  s.load(s.at.targets, targets);
  return s.evaluate_loss(s.evaluate_layers(sequences), sequences.rows());
}

std::vector<float> GPT::next_logits(std::span<const std::int32_t> tokens) {
  State& s = *state_;
  s.check_evaluation("GPT::next_logits: a step has begun; evaluate between steps");
  expects(!tokens.empty() && std::ssize(tokens) <= s.config.seq,
          "GPT::next_logits: give 1 to config().seq tokens");
  s.check_tokens("tokens", tokens);
  if (s.shape.batch == 0) {
    s.check_may_reserve(
        "GPT::next_logits: a model for training has no batch yet; call reserve or forward first");
    reserve(1);
  }
  const auto evaluation = s.model->evaluate();
  const CountedMemory in_use =
      s.world().memory().occupy(Category::activations, s.at.evaluation.bytes, "evaluation");
  s.load(s.at.inputs, tokens);
  const BatchShape sequence{1, std::ssize(tokens)};
  const Values stream = s.evaluate_layers(sequence);
  {
    const auto scope = s.model->forward(s.ends.head);
    s.evaluate_head(scope, stream, sequence.seq - 1, 1);
  }
  return read_floats(s.world(), s.at.evaluation.logits, static_cast<std::size_t>(s.config.vocab));
}

Values GPT::State::evaluate_layers(BatchShape sequences) {
  EvaluationMemory& memory = at.evaluation;
  {
    const auto scope = model->forward(ends.tokens);
    layers->embedding.forward(scope, at.inputs, memory.stream[0], sequences);
  }
  for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
    const auto scope = model->forward(blocks[layer]);
    memory.block.ln_1.x = memory.stream[layer % 2];
    layers->block.forward(scope, memory.block, memory.stream[(layer + 1) % 2], sequences);
  }
  shared_holds.reset();
  return memory.stream[blocks.size() % 2];
}

void GPT::State::evaluate_head(const Scope& scope, Values stream, std::int64_t first,
                               std::int64_t rows) {
  EvaluationMemory& memory = at.evaluation;
  memory.ln_f.x = stream.at(first * config.hidden);
  layers->ln_f.forward(scope, memory.ln_f, memory.normed, rows);
  layers->embedding.head(scope, memory.normed, memory.logits, rows);
}

double GPT::State::evaluate_loss(Values stream, std::int64_t rows) {
  const EvaluationMemory& memory = at.evaluation;
  Device& device = world().device();
  const Stream compute = world().compute_stream();
  device.fill(memory.loss, 0, sizeof(double), compute);
  {
    const auto scope = model->forward(ends.head);
    for (std::int64_t first = 0; first < rows; first += memory.logits_rows) {
      const std::int64_t count = std::min(memory.logits_rows, rows - first);
      evaluate_head(scope, stream, first, count);
      layers->loss.evaluate(memory.logits, at.targets + first, memory.loss, count, rows);
    }
  }
  double loss = 0.0;
  device.copy_out(&loss, memory.loss, sizeof loss, compute);
  compute.wait();
  return loss;
}

}  // namespace tessera::nn

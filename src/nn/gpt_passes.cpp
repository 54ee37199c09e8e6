#include <fmt/format.h>

#include <utility>

#include "nn/gpt_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nn {
namespace {

void check_tokens(std::string_view what, std::span<const std::int32_t> tokens, std::int64_t vocab) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) { continue; }
    throw ConfigError(fmt::format("{}[{}] is token {}, outside the vocabulary of {} (0 to {})",
                                  what, i, tokens[i], vocab, vocab - 1));
  }
}

}  // namespace

void GPT::forward(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  State& s = *state_;
  s.check_call(inputs, targets);
  reserve(static_cast<std::int64_t>(inputs.size()) / s.config.seq);
  s.load(inputs, targets);
  {
    const auto scope = s.model->forward(s.root);
    s.begin_stage(0);
    s.layers->embedding.forward(scope, s.at.inputs, s.at.residual.front(), s.shape);
    s.watch(scope, s.at.residual.front(), s.config.hidden);
  }
  for (std::size_t layer = 0; layer < s.blocks.size(); ++layer) {
    const auto scope = s.model->forward(s.blocks[layer]);
    s.begin_stage(layer + 1);
    s.layers->block.forward(scope, s.at.blocks[layer], s.at.residual[layer + 1], s.shape);
    s.watch(scope, s.at.residual[layer + 1], s.config.hidden);
  }
  {
    const auto scope = s.model->forward(s.root);
    s.begin_stage(s.blocks.size() + 1);
    s.layers->ln_f.forward(scope, s.at.ln_f, s.at.normed, s.shape.rows());
    s.layers->embedding.head(scope, s.at.normed, s.at.logits, s.shape.rows());
    s.watch(scope, s.at.logits, s.config.vocab);
    s.gather_logits();
    s.layers->loss.forward(s.at.logits, s.at.targets, s.at.loss, s.shape.rows(),
                           s.model->loss_scale());
  }
  s.micro_batch = (s.micro_batch + 1) % s.model->options().accumulate;
  s.forward_done = true;
}

void GPT::backward() {
  State& s = *state_;
  expects(s.forward_done, "GPT::backward: no micro-batch has gone forward");
  const std::int64_t values = s.shape.rows() * s.config.hidden;
  {
    const auto scope = s.model->backward(s.root);
    s.layers->embedding.head_backward(scope, s.at.normed, s.at.logits, s.at.scratch,
                                      s.shape.rows());
    s.world().device().fill(s.at.stream.data, 0,
                            static_cast<std::size_t>(values) * size_of(s.model->options().compute),
                            scope.stream());
    s.layers->ln_f.backward(scope, s.at.ln_f, s.at.scratch, s.at.stream, s.shape.rows());
    s.end_stage(s.blocks.size() + 1);
  }
  for (std::size_t layer = s.blocks.size(); layer-- > 0;) {
    const auto scope = s.model->backward(s.blocks[layer]);
    s.layers->block.backward(scope, s.at.blocks[layer], s.at.stream, s.at.scratch, s.shape);
    s.end_stage(layer + 1);
  }
  {
    const auto scope = s.model->backward(s.root);
    s.layers->embedding.backward(scope, s.at.inputs, s.at.stream, s.shape);
    s.end_stage(0);
  }
  s.forward_done = false;
}

void GPT::State::check_call(std::span<const std::int32_t> inputs,
                            std::span<const std::int32_t> targets) {
  expects(model != nullptr, "GPT::forward: not declared in a model yet");
  expects(!forward_done, "GPT::forward: the micro-batch before has not gone backward");
  expects(inputs.size() == targets.size(), "GPT::forward: as many targets as inputs are needed");
  expects(!inputs.empty() && inputs.size() % static_cast<std::size_t>(config.seq) == 0,
          "GPT::forward: inputs must be whole sequences of config().seq tokens");
  if (!world().device().computes()) { return; }  // nobody will look at a token
  check_tokens("inputs", inputs, config.vocab);
  check_tokens("targets", targets, config.vocab);
}

void GPT::State::watch(const ForwardScope& scope, ConstValues output, std::int64_t columns) const {
  scope.watch({output.data, shape.rows() * columns, output.dtype});
}

void GPT::State::begin_stage(std::size_t stage) {
  const bool outside = stage == 0 || stage == blocks.size() + 1;
  const Unit unit = outside ? root : blocks[stage - 1];
  in_use[stage] =
      world().memory().occupy(Category::activations, at.stage_bytes[stage], model->unit_name(unit));
}

void GPT::State::load(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  Device& device = world().device();
  const Stream stream = world().compute_stream();
  device.copy_in(at.inputs, inputs.data(), inputs.size_bytes(), stream);
  device.copy_in(at.targets, targets.data(), targets.size_bytes(), stream);
  if (micro_batch == 0) { device.fill(at.loss, 0, sizeof(double), stream); }
}

// The logits turn into their gradient next, so computation waits until they have been sent.
void GPT::State::gather_logits() {
  if (options.gather_logits == GatherLogits::off) { return; }
  const std::int64_t elems = shape.rows() * config.vocab;
  const DType dtype = model->options().compute;
  const Channel channel = world().gather_channel();
  Batch batch{"gather logits"};
  batch.gather(
      ConstView{at.logits.data, elems, dtype},
      View{gathered.data(), gathered.data() == nullptr ? 0 : elems * world().size(), dtype}, 0);
  world().compute_stream().record(logits_ready.get());
  channel.stream.wait_for(logits_ready.get());
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.record(logits_gathered.get());
  world().compute_stream().wait_for(logits_gathered.get());
}

}  // namespace tessera::nn

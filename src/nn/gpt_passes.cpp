#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "nn/drop.hpp"
#include "nn/gpt_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nn {
void GPT::forward(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  State& s = *state_;
  s.check_call(inputs, targets);
  expects(s.model->options().purpose == Purpose::training,
          "GPT::forward: the model was made for inference; use evaluate");
  reserve(static_cast<std::int64_t>(inputs.size()) / s.config.seq);
  s.load(inputs, targets);
  if (s.micro_batch == 0) {
    s.world().device().fill(s.at.loss, 0, sizeof(double), s.world().compute_stream());
  }
  s.choose_dropout();
  {
    const auto scope = s.model->forward(s.root);
    s.begin_stage(0);
    const Values first = s.open_boundary(0);
    s.layers->embedding.forward(scope, s.at.inputs, first, s.shape);
    drop(scope, s.embedding_dropout(), DropSite::embedding,
         {first, first, s.shape, s.config.hidden});
    s.watch(scope, first, s.config.hidden);
    s.save_boundary(0);
  }
  for (std::size_t layer = 0; layer < s.blocks.size(); ++layer) { s.forward_layer(layer); }
  {
    const auto scope = s.model->forward(s.root);
    s.begin_stage(s.blocks.size() + 1);
    s.layers->ln_f.forward(scope, s.at.ln_f, s.at.normed, s.shape.rows());
    s.forward_head(scope);
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
    s.fetch_boundary(s.blocks.size() - 1);
    s.backward_head(scope);
    s.world().device().fill(s.at.stream.data, 0,
                            static_cast<std::size_t>(values) * size_of(s.model->options().compute),
                            scope.stream());
    s.layers->ln_f.backward(scope, s.at.ln_f, s.at.scratch, s.at.stream, s.shape.rows());
    s.end_stage(s.blocks.size() + 1);
  }
  for (std::size_t layer = s.blocks.size(); layer-- > 0;) { s.backward_layer(layer); }
  {
    const auto scope = s.model->backward(s.root);
    drop(scope, s.embedding_dropout(), DropSite::embedding,
         {s.at.stream, s.at.stream, s.shape, s.config.hidden});
    s.layers->embedding.backward(scope, s.at.inputs, s.at.stream, s.shape);
    s.end_stage(0);
  }
  s.forward_done = false;
}

void GPT::State::forward_head(const ForwardScope& scope) {
  if (options.head_rows > 0) { return watch(scope, at.normed, config.hidden); }
  layers->embedding.head(scope, at.normed, at.logits, shape.rows());
  watch(scope, at.logits, config.logits_row_elems());
  gather_logits();
  layers->loss.forward(at.logits, at.targets, at.loss, shape.rows(), model->loss_scale());
}

void GPT::State::backward_head(const BackwardScope& scope) {
  const std::int64_t all = shape.rows();
  for (std::int64_t first = 0; first < all; first += at.logits_rows) {
    const std::int64_t rows = std::min(at.logits_rows, all - first);
    const Values normed = at.normed.at(first * config.hidden);
    if (options.head_rows > 0) {
      layers->embedding.head(scope, normed, at.logits, rows);
      layers->loss.forward_part(at.logits, at.targets + first, at.loss,
                                {.rows = rows, .all_rows = all}, model->loss_scale());
    }
    layers->embedding.head_backward(scope, normed, at.logits, at.scratch.at(first * config.hidden),
                                    rows);
  }
}

void GPT::State::forward_layer(std::size_t layer) {
  const auto scope = model->forward(blocks[layer]);
  begin_stage(layer + 1);
  if (at.recomputed[layer]) { begin_shared(layer); }
  const Values y = open_boundary(layer + 1);
  layers->block.forward(scope, at.blocks[layer], y, shape);
  watch(scope, y, config.hidden);
  save_boundary(layer + 1);
  close_boundary(layer);
  if (at.recomputed[layer] && recomputes_after(layer)) { shared_in_use = {}; }
}

void GPT::State::backward_layer(std::size_t layer) {
  const auto scope = model->backward(blocks[layer]);
  Block::Saved& saved = at.blocks[layer];
  saved.ln_1.x = read_boundary(layer);
  if (layer > 0) { fetch_boundary(layer - 1); }
  if (at.recomputed[layer] && shared_holds != layer) {
    begin_shared(layer);
    layers->block.recompute(scope, saved, shape);
  }
  CountedMemory lent;
  if (at.lent_bytes > 0) {
    lent = world().memory().occupy(Category::activations, at.lent_bytes,
                                   model->unit_name(blocks[layer]));
  }
  layers->block.backward(scope, saved, at.stream, at.scratch, shape);
  if (at.recomputed[layer]) { shared_in_use = {}; }
  close_boundary(layer);
  end_stage(layer + 1);
}

// The stream after the last layer stays on the device: it is needed next.
Values GPT::State::open_boundary(std::size_t layer) {
  if (store == nullptr || layer == blocks.size()) { return at.residual[layer]; }
  const Values opened{store->open(static_cast<int>(layer)), model->options().compute};
  at.blocks[layer].ln_1.x = opened;
  return opened;
}

void GPT::State::save_boundary(std::size_t layer) {
  if (store != nullptr && layer < blocks.size()) { store->save(static_cast<int>(layer)); }
}

void GPT::State::fetch_boundary(std::size_t layer) {
  if (store != nullptr) { store->fetch(static_cast<int>(layer)); }
}

ConstValues GPT::State::read_boundary(std::size_t layer) {
  if (store == nullptr) { return at.residual[layer]; }
  return {store->read(static_cast<int>(layer)), model->options().compute};
}

void GPT::State::close_boundary(std::size_t layer) {
  if (store != nullptr) { store->close(static_cast<int>(layer)); }
}

void GPT::State::begin_shared(std::size_t layer) {
  shared_in_use = {};
  shared_in_use = world().memory().occupy(Category::activations, at.shared_bytes,
                                          model->unit_name(blocks[layer]));
  shared_holds = layer;
}

bool GPT::State::recomputes_after(std::size_t layer) const {
  const auto later = at.recomputed.begin() + static_cast<std::ptrdiff_t>(layer) + 1;
  return std::find(later, at.recomputed.end(), true) != at.recomputed.end();
}

// As DistributedSampler numbers the samples of a step.
void GPT::State::choose_dropout() {
  const std::int64_t micro_batches = std::int64_t{micro_batch} * world().size() + world().rank();
  Dropout dropout{.p = options.dropout,
                  .seed = options.dropout_seed,
                  .step = model->steps(),
                  .first_sample = micro_batches * shape.batch};
  for (Block::Saved& block : at.blocks) {
    block.dropout = dropout;
    block.attn.dropout = dropout;
    ++dropout.layer;
  }
}

void GPT::State::check_call(std::span<const std::int32_t> inputs,
                            std::span<const std::int32_t> targets) {
  expects(model != nullptr, "GPT: not declared in a model yet");
  expects(!forward_done, "GPT: the micro-batch before has not gone backward");
  expects(inputs.size() == targets.size(), "GPT: as many targets as inputs are needed");
  expects(!inputs.empty() && inputs.size() % static_cast<std::size_t>(config.seq) == 0,
          "GPT: inputs must be whole sequences of config().seq tokens");
  check_tokens("inputs", inputs);
  check_tokens("targets", targets);
}

void GPT::State::check_tokens(std::string_view what, std::span<const std::int32_t> tokens) const {
  if (!world().device().computes()) { return; }  // nobody will look at a token
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < config.vocab) { continue; }
    throw ConfigError(fmt::format("{}[{}] is token {}, outside the vocabulary of {} (0 to {})",
                                  what, i, tokens[i], config.vocab, config.vocab - 1));
  }
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
  if (targets.empty()) { return; }
  device.copy_in(at.targets, targets.data(), targets.size_bytes(), stream);
}

// The logits turn into their gradient next, so computation waits until they have been sent.
void GPT::State::gather_logits() {
  if (options.gather_logits == GatherLogits::off) { return; }
  const std::int64_t elems = shape.rows() * config.logits_row_elems();
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

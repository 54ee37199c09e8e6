#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "nn/decoder_state.hpp"
#include "nn/drop.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nn {
void Decoder::forward(const MicroBatch& batch) {
  State& s = *state_;
  s.check_call(batch);
  expects(!s.pipelined(), "Decoder::forward: the mesh has a dimension `pipe`; call run instead");
  expects(s.model->options().purpose == Purpose::training,
          "Decoder::forward: the model was made for inference; use evaluate");
  reserve(std::ssize(batch.inputs) / s.config.seq);
  s.load(s.at.inputs, batch.inputs);
  s.load(s.at.targets, batch.targets);
  s.load_documents(s.at.first_keys, batch);
  if (s.micro_batch == 0) { s.clear_loss(); }
  s.forward(s.only_pass(), {}, {});
  s.micro_batch = (s.micro_batch + 1) % s.model->options().accumulate;
  s.forward_done = true;
}

void Decoder::backward() {
  State& s = *state_;
  expects(s.forward_done, "Decoder::backward: no micro-batch has gone forward; call forward first");
  s.backward(s.only_pass(), {}, {}, {});
  s.forward_done = false;
}

void Decoder::run(const std::function<MicroBatch(int)>& data) {
  State& s = *state_;
  expects(s.model != nullptr,
          "Decoder: it is not declared in a model; call declare or tessera::shard first");
  expects(data != nullptr, "Decoder::run: there is no data; pass a function");
  expects(!s.forward_done && s.micro_batch == 0,
          "Decoder::run: a step has begun; call it at the beginning of a step");
  if (s.pipelined()) { return s.run_pipeline(*this, data); }
  for (int micro = 0; micro < s.model->options().accumulate; ++micro) {
    forward_backward(data(micro));
  }
}

// A rank sees the micro-batches in order, whatever the schedule.
void Decoder::State::run_pipeline(Decoder& gpt, const std::function<MicroBatch(int)>& data) {
  expects(model->options().purpose == Purpose::training,
          "Decoder::run: the model was made for inference; use evaluate");
  std::vector<MicroBatch> batches;
  const auto batch_of = [&](int micro) -> const MicroBatch& {
    while (std::ssize(batches) <= micro) {
      const MicroBatch& batch = batches.emplace_back(data(static_cast<int>(batches.size())));
      check_call(batch);
      gpt.reserve(std::ssize(batch.inputs) / config.seq);
    }
    return batches[static_cast<std::size_t>(micro)];
  };
  static_cast<void>(batch_of(0));
  clear_loss();
  const auto values = [](const auto& view) {
    using Of =
        std::conditional_t<std::is_same_v<std::decay_t<decltype(view)>, View>, Values, ConstValues>;
    return Of{view.data, view.dtype};
  };
  pipeline->run(
      {.forward =
           [&](const pipeline::Turn& turn, ConstView input, View output) {
             const DecoderPass pass = pass_of(turn);
             const MicroBatch& batch = batch_of(pass.micro_batch);
             load(pass.at.inputs, batch.inputs);
             load(pass.at.targets, batch.targets);
             load_documents(pass.at.first_keys, batch);
             forward(pass, values(input), values(output));
           },
       .backward =
           [&](const pipeline::Turn& turn, ConstView input, ConstView output_gradient,
               View input_gradient) {
             backward(pass_of(turn), values(input), values(output_gradient),
                      values(input_gradient));
           },
       .backward_weight = [&](const pipeline::Turn& turn,
                              ConstView input) { backward_weight(pass_of(turn), values(input)); }});
}

DecoderPass Decoder::State::pass_of(const pipeline::Turn& turn) {
  const auto mine = std::ranges::find(place.stages, turn.action.stage, &DecoderStage::index);
  DecoderPass pass = pass_of(static_cast<std::size_t>(mine - place.stages.begin()), turn.slot,
                             turn.action.micro_batch);
  pass.divided = turn.action.work == pipeline::Work::backward_input;
  return pass;
}

DecoderPass Decoder::State::pass_of(std::size_t stage, int slot, int of_micro_batch) {
  const auto s = static_cast<std::size_t>(slot);
  return {.stage = place.stages[stage],
          .at = at.slots[s][stage],
          .in_use = in_use[s],
          .slot = slot,
          .micro_batch = of_micro_batch};
}

ForwardScope Decoder::State::open_forward(Unit unit, const DecoderPass& pass) {
  return pipelined() ? model->forward(unit, pass.micro_batch) : model->forward(unit);
}

BackwardScope Decoder::State::open_backward(Unit unit, const DecoderPass& pass) {
  return pipelined() ? model->backward(unit, pass.micro_batch) : model->backward(unit);
}

void Decoder::State::clear_loss() {
  if (at.loss == nullptr) { return; }
  world().device().fill(at.loss, 0, 2 * sizeof(double), world().compute_stream());
}

void Decoder::State::forward(const DecoderPass& pass, ConstValues input, Values output) {
  choose_dropout(pass);
  if (pass.stage.embeds) {
    forward_embedding(pass);
  } else {
    pass.at.blocks.front().ln_1.x = input;
  }
  for (std::size_t layer = 0; layer < pass.at.blocks.size(); ++layer) {
    forward_layer(pass, layer, output);
  }
  if (pass.stage.predicts) { forward_end(pass); }
}

void Decoder::State::backward(const DecoderPass& pass, ConstValues input,
                              ConstValues output_gradient, Values input_gradient) {
  // The gradient of the residual stream, in place from layer to layer.
  const Values stream = pass.stage.embeds ? at.stream : input_gradient;
  if (pass.stage.predicts) {
    backward_end(pass, stream);
  } else {
    world().device().copy(stream.data, output_gradient.data, stream_bytes(),
                          world().compute_stream());
  }
  if (input) { pass.at.blocks.front().ln_1.x = input; }
  for (std::size_t layer = pass.at.blocks.size(); layer-- > 0;) {
    pass.divided ? backward_layer_input(pass, layer, stream) : backward_layer(pass, layer, stream);
  }
  if (pass.stage.embeds) { backward_embedding(pass, stream); }
}

void Decoder::State::forward_embedding(const DecoderPass& pass) {
  const auto tokens = open_forward(ends.tokens, pass);
  std::optional<ForwardScope> positions;
  if (has_positions_unit()) { positions.emplace(open_forward(ends.positions, pass)); }
  begin_part(pass, 0);
  const Values first = open_boundary(pass, 0, {});
  layers->embedding.forward(tokens, positions ? *positions : tokens, pass.at.inputs, first, shape,
                            at.whole, pass.at.first_keys);
  drop(tokens, embedding_dropout(pass), DropSite::embedding,
       {first, first, shape, config.hidden, own()});
  watch(tokens, first, stream_elems());
  save_boundary(pass, 0);
}

void Decoder::State::backward_embedding(const DecoderPass& pass, Values stream) {
  const auto tokens = open_backward(ends.tokens, pass);
  std::optional<BackwardScope> positions;
  if (has_positions_unit()) { positions.emplace(open_backward(ends.positions, pass)); }
  drop(tokens, embedding_dropout(pass), DropSite::embedding,
       {stream, stream, shape, config.hidden, own()});
  layers->embedding.backward(tokens, positions ? *positions : tokens, pass.at.inputs, stream, shape,
                             at.whole, pass.at.first_keys);
  end_part(pass, 0);
}

void Decoder::State::forward_end(const DecoderPass& pass) {
  const auto scope = open_forward(ends.head, pass);
  begin_part(pass, pass.at.blocks.size() + 1);
  const Range mine = own();
  layers->ln_f.forward(scope, pass.at.ln_f, pass.at.normed.at(mine.first * config.hidden),
                       mine.elems);
  layers->ranks.gather(pass.at.normed, shape.rows(), config.hidden);
  forward_head(scope, pass);
}

void Decoder::State::backward_end(const DecoderPass& pass, Values stream) {
  const auto scope = open_backward(ends.head, pass);
  fetch_boundary(pass.at.blocks.size() - 1);
  backward_head(scope, pass);
  world().device().fill(stream.data, 0, stream_bytes(), scope.stream());
  const Range mine = own();
  layers->ranks.sum(at.scratch, shape.rows(), config.hidden);
  layers->ln_f.backward(scope, pass.at.ln_f, at.scratch.at(mine.first * config.hidden), stream,
                        mine.elems);
  end_part(pass, pass.at.blocks.size() + 1);
}

void Decoder::State::forward_head(const ForwardScope& scope, const DecoderPass& pass) {
  const std::int64_t rows = shape.rows();
  if (head_waits()) { return watch(scope, pass.at.normed, rows * config.hidden); }
  layers->embedding.head(scope, pass.at.normed, at.logits, rows);
  watch(scope, at.logits, rows * layers->embedding.logits_row_elems());
  gather_logits();
  layers->loss.forward(at.logits, pass.at.targets, at.loss, rows, model->loss_scale(),
                       at.statistics, counted());
}

void Decoder::State::backward_head(const BackwardScope& scope, const DecoderPass& pass) {
  CountedMemory logits;
  if (pipelined()) { logits = occupy(at.logits_bytes, ends.head); }
  const std::int64_t all = shape.rows();
  for (std::int64_t first = 0; first < all; first += at.logits_rows) {
    const std::int64_t rows = std::min(at.logits_rows, all - first);
    const Values normed = pass.at.normed.at(first * config.hidden);
    if (head_waits()) {
      layers->embedding.head(scope, normed, at.logits, rows);
      layers->loss.forward_part(at.logits, pass.at.targets + first, at.loss,
                                {.rows = rows, .all_rows = all}, model->loss_scale(), at.statistics,
                                counted());
    }
    layers->embedding.head_backward(scope, normed, at.logits, at.scratch.at(first * config.hidden),
                                    rows);
  }
}

void Decoder::State::forward_layer(const DecoderPass& pass, std::size_t layer, Values output) {
  const std::size_t of_all = layer_of_all(pass, layer);
  const auto scope = open_forward(blocks[of_all], pass);
  begin_part(pass, layer + 1);
  if (at.recomputed[of_all]) { begin_shared({pass.slot, of_all}); }
  const Values y = open_boundary(pass, layer + 1, output);
  layers->block.forward(scope, pass.at.blocks[layer], y, shape);
  watch(scope, y, stream_elems());
  save_boundary(pass, layer + 1);
  close_boundary(layer);
  if (at.recomputed[of_all] && recomputes_after(pass, layer)) { shared_in_use = {}; }
}

void Decoder::State::backward_layer(const DecoderPass& pass, std::size_t layer, Values stream) {
  const std::size_t of_all = layer_of_all(pass, layer);
  const auto scope = open_backward(blocks[of_all], pass);
  Block::Saved& saved = pass.at.blocks[layer];
  if (store != nullptr) { saved.ln_1.x = read_boundary(layer); }
  if (layer > 0) { fetch_boundary(layer - 1); }
  hold_activations(scope, pass, layer);
  CountedMemory lent;
  if (at.lent_bytes > 0) { lent = occupy(at.lent_bytes, blocks[of_all]); }
  layers->block.backward(scope, saved, stream, at.scratch, shape);
  if (at.recomputed[of_all]) { shared_in_use = {}; }
  close_boundary(layer);
  end_part(pass, layer + 1);
}

void Decoder::State::backward_layer_input(const DecoderPass& pass, std::size_t layer,
                                          Values stream) {
  const std::size_t of_all = layer_of_all(pass, layer);
  const auto scope = model->read(blocks[of_all], pass.micro_batch);
  hold_activations(scope, pass, layer);
  CountedMemory lent;
  if (at.lent_bytes > 0) { lent = occupy(at.lent_bytes, blocks[of_all]); }
  layers->block.backward_input(scope, pass.at.blocks[layer], pass.at.deferred[layer], stream,
                               at.scratch, shape);
}

void Decoder::State::backward_weight(const DecoderPass& pass, ConstValues input) {
  if (input) { pass.at.blocks.front().ln_1.x = input; }
  for (std::size_t layer = pass.at.blocks.size(); layer-- > 0;) {
    const std::size_t of_all = layer_of_all(pass, layer);
    const auto scope = open_backward(blocks[of_all], pass);
    hold_activations(scope, pass, layer);
    layers->block.backward_weight(scope, pass.at.blocks[layer], pass.at.deferred[layer], at.scratch,
                                  shape);
    if (at.recomputed[of_all]) { shared_in_use = {}; }
    end_part(pass, layer + 1);
  }
}

void Decoder::State::hold_activations(const Scope& scope, const DecoderPass& pass,
                                      std::size_t layer) {
  const SharedBy by{pass.slot, layer_of_all(pass, layer)};
  if (!at.recomputed[by.layer] || shared_holds == by) { return; }
  begin_shared(by);
  layers->block.recompute(scope, pass.at.blocks[layer], shape);
}

// The stream after the last layer stays on the device: it is needed next.
Values Decoder::State::open_boundary(const DecoderPass& pass, std::size_t layer, Values output) {
  const bool last = layer == pass.at.blocks.size();
  if (last && output) { return output; }
  if (store == nullptr || last) { return pass.at.residual[layer]; }
  const Values opened{store->open(static_cast<int>(layer)), model->options().compute};
  pass.at.blocks[layer].ln_1.x = opened;
  return opened;
}

void Decoder::State::save_boundary(const DecoderPass& pass, std::size_t layer) {
  if (store != nullptr && layer < pass.at.blocks.size()) { store->save(static_cast<int>(layer)); }
}

void Decoder::State::fetch_boundary(std::size_t layer) {
  if (store != nullptr) { store->fetch(static_cast<int>(layer)); }
}

ConstValues Decoder::State::read_boundary(std::size_t layer) {
  return {store->read(static_cast<int>(layer)), model->options().compute};
}

void Decoder::State::close_boundary(std::size_t layer) {
  if (store != nullptr) { store->close(static_cast<int>(layer)); }
}

void Decoder::State::begin_shared(SharedBy by) {
  shared_in_use = {};
  shared_in_use = occupy(at.shared_bytes, blocks[by.layer]);
  shared_holds = by;
}

bool Decoder::State::recomputes_after(const DecoderPass& pass, std::size_t layer) const {
  const auto first = at.recomputed.begin() + pass.stage.first_layer;
  const auto end = first + pass.stage.layers;
  return std::find(first + static_cast<std::ptrdiff_t>(layer) + 1, end, true) != end;
}

// The numbers that DistributedSampler gives to the samples of a step.
void Decoder::State::choose_dropout(const DecoderPass& pass) {
  const std::int64_t before = std::int64_t{pass.micro_batch} * place.data_ranks + place.data_rank;
  Dropout dropout{.p = options.dropout,
                  .seed = options.dropout_seed,
                  .step = model->steps(),
                  .first_sample = before * shape.batch,
                  .layer = pass.stage.first_layer};
  for (Block::Saved& block : pass.at.blocks) {
    block.dropout = dropout;
    block.attn.dropout = dropout;
    ++dropout.layer;
  }
}

void Decoder::State::check_call(const MicroBatch& batch) const {
  const auto& [inputs, targets, first_keys] = batch;
  expects(model != nullptr,
          "Decoder: it is not declared in a model; call declare or tessera::shard first");
  expects(!forward_done,
          "Decoder: the previous micro-batch has not gone backward; call backward first");
  expects(inputs.size() == targets.size(), "Decoder: inputs and targets must have equal sizes");
  expects(!inputs.empty() && inputs.size() % static_cast<std::size_t>(config.seq) == 0,
          "Decoder: inputs must be whole sequences of config().seq tokens");
  expects(first_keys.empty() || options.packed,
          "Decoder: MicroBatch::first_keys without DecoderOptions::packed; set that");
  expects(first_keys.empty() || first_keys.size() == inputs.size(),
          "Decoder: there must be as many first_keys as inputs, or none");
  if (!world().device().computes()) { return; }  // no kernel will read them
  check_tokens("inputs", inputs);
  check_tokens("targets", targets, options.masked);
  check_documents(first_keys);
}

void Decoder::State::check_tokens(std::string_view what, std::span<const std::int32_t> tokens,
                                  bool may_ignore) const {
  if (!world().device().computes()) { return; }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < config.vocab) { continue; }
    if (tokens[i] == kIgnoredTarget && may_ignore) { continue; }
    throw ConfigError(fmt::format("{}[{}] is token {}, outside the vocabulary of {} (0 to {}){}",
                                  what, i, tokens[i], config.vocab, config.vocab - 1,
                                  tokens[i] == kIgnoredTarget && what == "targets"
                                      ? "; DecoderOptions::masked lets targets be ignored"
                                      : ""));
  }
}

void Decoder::State::check_documents(std::span<const std::int32_t> first_keys) const {
  for (std::size_t i = 0; i < first_keys.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i) % config.seq;
    const std::int32_t least = token == 0 ? 0 : first_keys[i - 1];
    if (first_keys[i] >= least && first_keys[i] <= token) { continue; }
    throw ConfigError(
        fmt::format("first_keys[{}] is {}: the document of token {} of a sequence begins at {} to "
                    "{}",
                    i, first_keys[i], token, least, token));
  }
}

void Decoder::State::watch(const ForwardScope& scope, ConstValues output, std::int64_t elems) {
  scope.watch({output.data, elems, output.dtype});
}

CountedMemory Decoder::State::occupy(std::size_t bytes, Unit unit) {
  return world().memory().occupy(Category::activations, bytes, model->unit_name(unit));
}

void Decoder::State::begin_part(const DecoderPass& pass, std::size_t part) {
  const Unit unit = part == 0                           ? ends.tokens
                    : part == pass.at.blocks.size() + 1 ? ends.head
                                                        : blocks[layer_of_all(pass, part - 1)];
  pass.in_use[part] = occupy(pass.at.part_bytes[part], unit);
}

void Decoder::State::load(std::int32_t* to, std::span<const std::int32_t> tokens) {
  if (to == nullptr) { return; }  // another stage reads them
  world().device().copy_in(to, tokens.data(), tokens.size_bytes(), world().compute_stream());
}

void Decoder::State::load_documents(std::int32_t* to, const MicroBatch& batch) {
  if (to == nullptr) { return; }  // sequences are whole documents
  if (!batch.first_keys.empty()) { return load(to, batch.first_keys); }
  world().device().fill(to, 0, batch.inputs.size_bytes(), world().compute_stream());
}

// The logits turn into their gradient next, so computation waits until they are sent.
void Decoder::State::gather_logits() {
  if (options.gather_logits == GatherLogits::off) { return; }
  const std::int64_t elems = shape.rows() * config.logits_row_elems();
  const DType dtype = model->options().compute;
  Batch batch{"gather logits"};
  batch.gather(
      ConstView{at.logits.data, elems, dtype},
      View{gathered.data(), gathered.data() == nullptr ? 0 : elems * world().size(), dtype}, 0);
  submit_in_order(world().compute_stream(), world().gather_channel(), std::move(batch),
                  logits_gathered.get());
}

}  // namespace tessera::nn

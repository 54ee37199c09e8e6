#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "nn/decoder_state.hpp"
#include "nn/vocab_cut.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/elementwise.hpp"

// A forward pass that keeps nothing: one layer after the other in the same memory.
namespace tessera::nn {
namespace {

/// Reads `count` values from device memory to the host as fp32.
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

void Decoder::State::check_evaluation(const char* what) const {
  expects(model != nullptr,
          "Decoder: it is not declared in a model; call declare or tessera::shard first");
  expects(!forward_done && micro_batch == 0, what);
}

void Decoder::State::check_may_reserve(const char* what) const {
  expects(model->options().purpose == Purpose::inference, what);
}

double Decoder::evaluate(const MicroBatch& batch) {
  State& s = *state_;
  s.check_call(batch);
  s.check_evaluation("Decoder::evaluate: a step has begun; evaluate between steps");
  const BatchShape sequences{std::ssize(batch.inputs) / s.config.seq, s.config.seq};
  if (s.shape.batch == 0) {
    s.check_may_reserve(
        "Decoder::evaluate: a model for training has no batch yet; call reserve or forward first");
    reserve(sequences.batch);
  }
  expects(sequences.batch <= s.shape.batch,
          "Decoder::evaluate: more sequences than were reserved; reserve for the larger batch");
  const auto evaluation = s.model->evaluate();
  const CountedMemory in_use =
      s.world().memory().occupy(Category::activations, s.at.evaluation.bytes, "evaluation");
  s.load(s.at.inputs, batch.inputs);
  s.load_documents(s.at.first_keys, batch);
  const Values stream = s.evaluate_layers(sequences, s.at.first_keys);
  s.load(s.at.targets, batch.targets);
  return s.evaluate_loss(stream, sequences.rows());
}

std::vector<float> Decoder::next_logits(std::span<const std::int32_t> tokens) {
  State& s = *state_;
  s.check_evaluation("Decoder::next_logits: a step has begun; evaluate between steps");
  expects(!tokens.empty() && std::ssize(tokens) <= s.config.seq,
          "Decoder::next_logits: give 1 to config().seq tokens");
  s.check_tokens("tokens", tokens);
  if (s.shape.batch == 0) {
    s.check_may_reserve(
        "Decoder::next_logits: a model for training has no batch yet; call reserve or forward "
        "first");
    reserve(1);
  }
  const auto evaluation = s.model->evaluate();
  const CountedMemory in_use =
      s.world().memory().occupy(Category::activations, s.at.evaluation.bytes, "evaluation");
  s.load(s.at.inputs, tokens);
  const BatchShape sequence{1, std::ssize(tokens)};
  const Values stream = s.evaluate_layers(sequence, nullptr);
  if (s.place.predicts()) {
    const auto scope = s.model->forward(s.ends.head);
    s.evaluate_norm(scope, stream, sequence.seq);
    s.evaluate_head(scope, sequence.seq - 1, 1);
  }
  return s.collect_logits();
}

Values Decoder::State::evaluate_layers(BatchShape sequences, const std::int32_t* first_key) {
  EvaluationMemory& memory = at.evaluation;
  memory.block.attn.first_key = first_key;
  Values stream = memory.stream[0];
  if (place.embeds()) {
    const auto tokens = model->forward(ends.tokens);
    std::optional<ForwardScope> positions;
    if (has_positions_unit()) { positions.emplace(model->forward(ends.positions)); }
    layers->embedding.forward(tokens, positions ? *positions : tokens, at.inputs, stream, sequences,
                              at.whole, first_key);
  }
  for (const DecoderStage& stage : place.all_stages) {
    const bool mine = place.pipe_of(stage.index) == place.pipe_index;
    if (mine) { stream = evaluate_stage(stage, stream, sequences); }
    if (!stage.predicts) {
      const std::int64_t elems = layers->ranks.own(sequences.rows()).elems * config.hidden;
      broadcast_along_pipe(stage, {stream.data, elems, stream.dtype});
    }
  }
  shared_holds.reset();
  return stream;
}

Values Decoder::State::evaluate_stage(const DecoderStage& stage, Values stream,
                                      BatchShape sequences) {
  EvaluationMemory& memory = at.evaluation;
  Values next = stream.data == memory.stream[0].data ? memory.stream[1] : memory.stream[0];
  for (std::int64_t layer = 0; layer < stage.layers; ++layer) {
    const auto scope = model->forward(blocks[static_cast<std::size_t>(stage.first_layer + layer)]);
    memory.block.ln_1.x = stream;
    memory.block.attn.window = config.window_of(stage.first_layer + layer);
    layers->block.forward(scope, memory.block, next, sequences);
    std::swap(stream, next);
  }
  return stream;
}

void Decoder::State::evaluate_norm(const Scope& scope, Values stream, std::int64_t rows) {
  EvaluationMemory& memory = at.evaluation;
  const Range mine = layers->ranks.own(rows);
  memory.ln_f.x = stream;
  layers->ln_f.forward(scope, memory.ln_f, memory.normed.at(mine.first * config.hidden),
                       mine.elems);
  layers->ranks.gather(memory.normed, rows, config.hidden);
}

void Decoder::State::evaluate_head(const Scope& scope, std::int64_t first, std::int64_t rows) {
  const EvaluationMemory& memory = at.evaluation;
  layers->embedding.head(scope, memory.normed.at(first * config.hidden), memory.logits, rows);
}

double Decoder::State::evaluate_loss(Values stream, std::int64_t rows) {
  const EvaluationMemory& memory = at.evaluation;
  Device& device = world().device();
  const Stream compute = world().compute_stream();
  constexpr std::int64_t kSums = 2;  // the loss, and the number of targets that count
  double* const counted = options.masked ? memory.loss + 1 : nullptr;
  device.fill(memory.loss, 0, kSums * sizeof(double), compute);
  if (place.predicts()) {
    const auto scope = model->forward(ends.head);
    evaluate_norm(scope, stream, rows);
    for (std::int64_t first = 0; first < rows; first += memory.logits_rows) {
      const std::int64_t count = std::min(memory.logits_rows, rows - first);
      evaluate_head(scope, first, count);
      layers->loss.evaluate(memory.logits, at.targets + first, memory.loss, count, rows,
                            at.statistics, counted);
    }
  }
  broadcast_along_pipe(place.all_stages.back(),
                       {memory.loss, options.masked ? kSums : 1, DType::fp64});
  std::array<double, kSums> sums{};
  device.copy_out(sums.data(), memory.loss, sizeof sums, compute);
  compute.wait();
  if (!options.masked) { return sums[0]; }
  return sums[1] == 0.0 ? 0.0 : sums[0] * (static_cast<double>(rows) / sums[1]);
}

// An evaluation sends all ranks what one of them needs: it is rare, and waits at every stage
// anyway.
void Decoder::State::broadcast_along_pipe(const DecoderStage& stage, View data) {
  if (!along_pipe || data.elems == 0) { return; }
  submit_in_order(world().compute_stream(), *along_pipe,
                  Batch{"evaluate stage"}.broadcast(data, place.pipe_of(stage.index)),
                  stage_sent.get());
}

std::vector<float> Decoder::State::collect_logits() {
  const EvaluationMemory& memory = at.evaluation;
  const auto vocab = static_cast<std::size_t>(config.vocab);
  if (memory.row == nullptr) { return read_floats(world(), memory.logits, vocab); }
  const TensorRanks& ranks = layers->ranks;
  const std::vector<Range> parts = vocab_parts(world(), config.vocab, ranks.size());
  const std::int64_t elems = memory.row_part_elems;
  if (place.predicts()) {
    const std::int64_t mine = parts[static_cast<std::size_t>(ranks.index())].elems;
    kernels::cast({memory.row + ranks.index() * elems, mine, DType::fp32},
                  {memory.logits.data, mine, memory.logits.dtype}, world().compute_stream());
    ranks.all_gather(memory.row, elems);
  }
  const std::int64_t all = ranks.size() * elems;
  broadcast_along_pipe(place.all_stages.back(), {memory.row, all, DType::fp32});
  const std::vector<float> rows =
      read_floats(world(), {memory.row, DType::fp32}, static_cast<std::size_t>(all));
  std::vector<float> logits(vocab);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(rank) * elems, parts[rank].elems,
                logits.begin() + parts[rank].first);
  }
  return logits;
}

}  // namespace tessera::nn

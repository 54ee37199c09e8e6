#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/decoder_activations.hpp"
#include "nn/decoder_layers.hpp"
#include "nn/decoder_stages.hpp"
#include "tessera/engine/activation_store.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/pipeline/pipeline.hpp"

namespace tessera::nn {

/// Units of parameters outside the blocks: the first without a pipeline, the others with one.
inline constexpr std::string_view kRootUnit = "root";
inline constexpr std::string_view kTokensUnit = "tokens";
inline constexpr std::string_view kPositionsUnit = "positions";
inline constexpr std::string_view kHeadUnit = "head";

/// The units with the parameters outside the blocks: without a pipeline one unit has all of them.
struct EndUnits {
  Unit tokens;
  Unit positions;
  Unit head;
};

/// One micro-batch's pass through one stage.
struct DecoderPass {
  const DecoderStage& stage;
  StageActivations& at;
  std::vector<CountedMemory>& in_use;  ///< by part: the embedding, the layers, the head
  int slot = 0;
  int micro_batch = 0;   ///< number within the step
  bool divided = false;  ///< whether its backward pass leaves the gradients of weights for later
};

/// Whose activations the shared memory of recomputed layers holds.
struct SharedBy {
  int slot = 0;
  std::size_t layer = 0;  ///< among all layers
  friend bool operator==(const SharedBy&, const SharedBy&) = default;
};

struct Decoder::State {
  DecoderConfig config;
  DecoderOptions options;

  // Set by `declare`.
  ShardedModel* model = nullptr;
  DecoderPlace place;
  EndUnits ends;
  std::vector<Unit> blocks;  // by layer, of all stages
  std::optional<DecoderLayers> layers;
  std::optional<Channel> along_pipe;  // for evaluations, if there is a pipeline
  OwnedEvent stage_sent;              // orders its batches

  // Set by `reserve`.
  BatchShape shape;
  Arena kept;
  Arena passing;
  DecoderActivations at;
  std::unique_ptr<pipeline::Pipeline> pipeline;
  std::vector<std::vector<CountedMemory>> in_use;  // by slot and part: from forward to backward
  std::unique_ptr<ActivationStore> store;  // holds the boundaries, if they are in the host pool
  CountedMemory shared_in_use;             // the activations of recomputed layers ...
  std::optional<SharedBy> shared_holds;    // ... and whose they are
  Buffer gathered;
  OwnedEvent logits_gathered;

  int micro_batch = 0;  // number within the step
  bool forward_done = false;

  State(const DecoderConfig& config_, DecoderOptions options_)
      : config{config_}, options{std::move(options_)} {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] World& world() const { return model->world(); }
  [[nodiscard]] bool pipelined() const noexcept { return place.schedule.has_value(); }
  /// Whether the table of positions has a unit of its own.
  [[nodiscard]] bool has_positions_unit() const noexcept {
    return pipelined() && config.positions == PositionKind::learned;
  }
  /// Declares the units in `ends`. Returns those that a forward pass opens, the head last.
  [[nodiscard]] std::vector<Unit> declare_ends(ShardedModel& to);
  void check_call(const MicroBatch& batch) const;
  /// Throws ConfigError for a token outside the vocabulary; kIgnoredTarget may be allowed.
  void check_tokens(std::string_view what, std::span<const std::int32_t> tokens,
                    bool may_ignore = false) const;
  /// Throws ConfigError unless `first_keys` are those of documents.
  void check_documents(std::span<const std::int32_t> first_keys) const;
  /// Does nothing if `to` is null: the rank does not use the tokens.
  void load(std::int32_t* to, std::span<const std::int32_t> tokens);
  /// Loads where documents begin: with each of `batch`'s sequences if it says nothing.
  void load_documents(std::int32_t* to, const MicroBatch& batch);
  /// The number of targets that the step counted so far, next to the loss; null if all count.
  [[nodiscard]] double* counted() const noexcept {
    return options.masked && at.loss != nullptr ? at.loss + 1 : nullptr;
  }
  void gather_logits();
  /// Declares a unit's output of `elems` elements, for the diagnosis of skipped steps.
  static void watch(const ForwardScope& scope, ConstValues output, std::int64_t elems);
  void choose_dropout(const DecoderPass& pass);
  [[nodiscard]] static const Dropout& embedding_dropout(const DecoderPass& pass) {
    return pass.at.blocks.front().dropout;
  }

  // Passes. What stages exchange is empty at the ends, and without a pipeline.
  void run_pipeline(Decoder& gpt, const std::function<MicroBatch(int)>& data);
  [[nodiscard]] DecoderPass pass_of(const pipeline::Turn& turn);
  [[nodiscard]] DecoderPass pass_of(std::size_t stage, int slot, int of_micro_batch);
  /// Without a pipeline: the pass of the current micro-batch, or of the last one.
  [[nodiscard]] DecoderPass only_pass() { return pass_of(0, 0, micro_batch); }
  void clear_loss();
  void forward(const DecoderPass& pass, ConstValues input, Values output);
  void backward(const DecoderPass& pass, ConstValues input, ConstValues output_gradient,
                Values input_gradient);
  /// Computes what a divided backward pass has left of its layers. The ends of the decoder are not
  /// divided: they would have to keep logits.
  void backward_weight(const DecoderPass& pass, ConstValues input);
  [[nodiscard]] ForwardScope open_forward(Unit unit, const DecoderPass& pass);
  [[nodiscard]] BackwardScope open_backward(Unit unit, const DecoderPass& pass);
  void forward_embedding(const DecoderPass& pass);
  void backward_embedding(const DecoderPass& pass, Values stream);
  /// ln_f and the head. Backward writes the gradient of the stream after the last layer.
  void forward_end(const DecoderPass& pass);
  void backward_end(const DecoderPass& pass, Values stream);
  /// Whether the head waits for the backward pass: with DecoderOptions::head_rows, and in a
  /// pipeline, where the logits of one micro-batch then suffice.
  [[nodiscard]] bool head_waits() const noexcept { return options.head_rows > 0 || pipelined(); }
  /// From ln_f's output to the loss; in the backward scope if the head waits.
  void forward_head(const ForwardScope& scope, const DecoderPass& pass);
  void backward_head(const BackwardScope& scope, const DecoderPass& pass);
  void forward_layer(const DecoderPass& pass, std::size_t layer, Values output);
  void backward_layer(const DecoderPass& pass, std::size_t layer, Values stream);
  void backward_layer_input(const DecoderPass& pass, std::size_t layer, Values stream);
  /// Recomputes the layer's activations if they are shared and hold another layer's.
  void hold_activations(const Scope& scope, const DecoderPass& pass, std::size_t layer);

  // Boundary `layer` is the residual stream before that layer of a stage.
  [[nodiscard]] Values open_boundary(const DecoderPass& pass, std::size_t layer, Values output);
  void save_boundary(const DecoderPass& pass, std::size_t layer);
  void fetch_boundary(std::size_t layer);
  [[nodiscard]] ConstValues read_boundary(std::size_t layer);
  void close_boundary(std::size_t layer);

  [[nodiscard]] static std::size_t layer_of_all(const DecoderPass& pass, std::size_t layer) {
    return static_cast<std::size_t>(pass.stage.first_layer) + layer;
  }
  /// The rows that this rank has between the products.
  [[nodiscard]] Range own() const { return layers->ranks.own(shape.rows()); }
  /// The elements of the residual stream, [own, hidden].
  [[nodiscard]] std::int64_t stream_elems() const { return own().elems * config.hidden; }
  [[nodiscard]] std::size_t stream_bytes() const {
    return static_cast<std::size_t>(stream_elems()) * size_of(model->options().compute);
  }
  /// Counts activations as in use.
  [[nodiscard]] CountedMemory occupy(std::size_t bytes, Unit unit);
  /// Part 0 is the embedding, then the layers, then the head.
  void begin_part(const DecoderPass& pass, std::size_t part);
  static void end_part(const DecoderPass& pass, std::size_t part) { pass.in_use[part] = {}; }
  /// The shared activations belong to this layer from now on.
  void begin_shared(SharedBy by);
  /// Whether a later layer of the stage is recomputed too.
  [[nodiscard]] bool recomputes_after(const DecoderPass& pass, std::size_t layer) const;

  // Evaluation (decoder_evaluation.cpp).
  void check_evaluation(const char* what) const;
  /// An evaluation does not choose the batch of a training.
  void check_may_reserve(const char* what) const;
  /// The residual stream after all layers, for the tokens in `at.inputs`: on the ranks of the last
  /// stage.
  /// `first_key`: where their documents begin, or null.
  [[nodiscard]] Values evaluate_layers(BatchShape sequences, const std::int32_t* first_key);
  [[nodiscard]] Values evaluate_stage(const DecoderStage& stage, Values stream,
                                      BatchShape sequences);
  /// Writes ln_f's output of that stream to the evaluation's memory.
  void evaluate_norm(const Scope& scope, Values stream, std::int64_t rows);
  /// Writes the logits of its rows [first, first + rows) to the evaluation's memory.
  void evaluate_head(const Scope& scope, std::int64_t first, std::int64_t rows);
  [[nodiscard]] double evaluate_loss(Values stream, std::int64_t rows);
  /// Copies the data of the stage's rank to the others along `pipe`.
  void broadcast_along_pipe(const DecoderStage& stage, View data);
  /// The logits of one row, on the host of every rank.
  [[nodiscard]] std::vector<float> collect_logits();
};

}  // namespace tessera::nn

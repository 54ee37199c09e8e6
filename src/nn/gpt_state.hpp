#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/gpt_activations.hpp"
#include "tessera/engine/activation_store.hpp"
#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/nn/gpt.hpp"

namespace tessera::nn {

/// The unit of what is used outside the blocks.
inline constexpr std::string_view kRoot = "root";

struct GPTLayers {
  GPTLayers(World& world, const GPTConfig& config, const GPTOptions& options, int micro_batches)
      : embedding{world, {config.vocab, config.seq, config.hidden, config.logits_row_elems()}},
        block{world, config.hidden, config.heads, options.norms},
        ln_f{"ln_f", config.hidden, options.norms},
        loss{world, config.vocab, micro_batches, config.logits_row_elems()} {}

  Embedding embedding;
  Block block;  // one for all: its parameters are those of the scope
  LayerNorm ln_f;
  CrossEntropy loss;
};

struct GPT::State {
  GPTConfig config;
  GPTOptions options;

  // From `declare` on.
  ShardedModel* model = nullptr;
  Unit root;
  std::vector<Unit> blocks;
  std::optional<GPTLayers> layers;

  // From `reserve` on.
  BatchShape shape;
  Arena kept;
  Arena passing;
  GPTActivations at;
  std::vector<CountedMemory> in_use;        // by stage: from its forward to its backward
  std::unique_ptr<ActivationStore> store;   // of the boundaries, if they are in the host pool
  CountedMemory shared_in_use;              // the activations of recomputed layers ...
  std::optional<std::size_t> shared_holds;  // ... and whose they are
  Buffer gathered;
  OwnedEvent logits_ready;
  OwnedEvent logits_gathered;

  int micro_batch = 0;  // of the step
  bool forward_done = false;

  State(const GPTConfig& config_, GPTOptions options_)
      : config{config_}, options{std::move(options_)} {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] World& world() const { return model->world(); }
  void check_call(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  /// ConfigError for one outside the vocabulary.
  void check_tokens(std::string_view what, std::span<const std::int32_t> tokens) const;
  void load(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  void gather_logits();
  /// Declares a unit's output of [rows, columns], for the diagnosis of skipped steps.
  void watch(const ForwardScope& scope, ConstValues output, std::int64_t columns) const;
  void choose_dropout();
  [[nodiscard]] Dropout embedding_dropout() const { return at.blocks.front().dropout; }
  // Boundary `layer` is the residual stream before that layer.
  [[nodiscard]] Values open_boundary(std::size_t layer);
  void save_boundary(std::size_t layer);
  void fetch_boundary(std::size_t layer);
  [[nodiscard]] ConstValues read_boundary(std::size_t layer);
  void close_boundary(std::size_t layer);
  /// From ln_f's output to the loss; with head_rows in the backward scope, some rows at a time.
  void forward_head(const ForwardScope& scope);
  void backward_head(const BackwardScope& scope);
  void forward_layer(std::size_t layer);
  void backward_layer(std::size_t layer);
  /// Stage 0 is the embedding, then the layers, then the head.
  void begin_stage(std::size_t stage);
  void end_stage(std::size_t stage) { in_use[stage] = {}; }
  /// The shared activations are those of `layer` from now on.
  void begin_shared(std::size_t layer);
  [[nodiscard]] bool recomputes_after(std::size_t layer) const;

  // Evaluation (gpt_evaluation.cpp).
  void check_evaluation(const char* what) const;
  /// An evaluation does not choose the batch of a training.
  void check_may_reserve(const char* what) const;
  /// The residual stream after all layers, of tokens in `at.inputs`.
  [[nodiscard]] Values evaluate_layers(BatchShape sequences);
  /// Puts the logits of rows [first, first + rows) of the stream where an evaluation has them.
  void evaluate_head(const Scope& scope, Values stream, std::int64_t first, std::int64_t rows);
  [[nodiscard]] double evaluate_loss(Values stream, std::int64_t rows);
};

}  // namespace tessera::nn

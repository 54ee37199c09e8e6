#include "nn/decoder_activations.hpp"

#include <algorithm>
#include <ranges>

#include "nn/vocab_cut.hpp"
#include "tessera/kernels/attention.hpp"

namespace tessera::nn {
namespace {

Norm::Saved cut_norm(const Norm& norm, ConstValues x, std::int64_t rows, Cutter& kept) {
  return {.x = x,
          .mean = norm.has_mean() ? kept.take<float>(rows) : nullptr,
          .inverse = kept.take<float>(rows)};
}

/// A layer's working memory, besides what it keeps.
struct Passing {
  float* workspace;     ///< for attention
  Values scratch;       ///< Block::scratch_elems of gradients, idle in forward
  Values wide_scratch;  ///< its part after [rows, hidden]: as wide as the MLP, or as qkv
  Values whole;         ///< [rows, hidden]; with sequence parallelism
  RotaryTables rotary;
};

/// The outputs that a layer recomputes in backward: in forward they are in the scratch.
struct Again {
  bool activated = false;
  bool norms = false;
};

Again again_of(const ActivationSizes& sizes, std::int64_t layer) {
  if (sizes.purpose == Purpose::inference) { return {}; }
  const Recompute& recompute = sizes.options->recompute;
  return {.activated = recompute.activation_of(layer), .norms = recompute.norms_of(layer)};
}

Block::Saved cut_block(const ActivationSizes& sizes, const Passing& passing, Again again,
                       Cutter& kept) {
  const Block& block = sizes.layers.block;
  const std::int64_t rows = sizes.shape.rows();
  const std::int64_t own = sizes.own_rows();
  const CausalSelfAttention& attention = block.attention();
  const std::int64_t activated = rows * block.mlp().columns();
  const auto norm = [&] {
    return again.norms ? passing.scratch : kept.take_values(sizes.whole_elems(), sizes.compute);
  };
  Block::Saved saved{};
  saved.norms_again = again.norms;
  saved.normed_1 = norm();
  saved.middle = kept.take_values(sizes.stream_elems(), sizes.compute);
  saved.normed_2 = norm();
  saved.ln_1 = cut_norm(block.norm(), {}, own, kept);
  saved.attn = {.x = saved.normed_1,
                .qkv = kept.take_values(rows * attention.packed(), sizes.compute),
                .mixed = kept.take_values(rows * attention.columns(), sizes.compute),
                .log_sum_exp = kept.take<float>(rows * attention.heads()),
                .workspace = passing.workspace,
                .rotary = passing.rotary,
                .whole = passing.whole};
  if (sizes.config.head_norms) {
    saved.attn.normed = passing.wide_scratch;
    saved.attn.inverse_rms = kept.take<float>(rows * (attention.heads() + attention.key_heads()));
  }
  saved.ln_2 = cut_norm(block.norm(), saved.middle, own, kept);
  saved.mlp = {.x = saved.normed_2,
               .wide = kept.take_values(rows * block.mlp().wide_columns(), sizes.compute),
               .activated = again.activated ? passing.wide_scratch
                                            : kept.take_values(activated, sizes.compute),
               .activated_again = again.activated,
               .whole = passing.whole};
  return saved;
}

Block::Deferred cut_deferred(const ActivationSizes& sizes, Cutter& kept) {
  const std::int64_t rows = sizes.shape.rows();
  const auto whole = [&] { return kept.take_values(sizes.whole_elems(), sizes.compute); };
  const auto columns = [&](std::int64_t of) { return kept.take_values(rows * of, sizes.compute); };
  const Block& block = sizes.layers.block;
  return {.mlp_dy = whole(),
          .dwide = columns(block.mlp().wide_columns()),
          .dnormed_2 = whole(),
          .attn_dy = whole(),
          .dqkv = columns(block.attention().packed()),
          .dnormed_1 = whole()};
}

/// The activations of a layer with this input.
Block::Saved for_layer(Block::Saved saved, const DecoderConfig& config, std::int64_t layer,
                       ConstValues x) {
  saved.ln_1.x = x;
  saved.attn.window = config.window_of(layer);
  return saved;
}

std::int64_t evaluated_rows(const ActivationSizes& sizes) {
  return std::min(kEvaluatedRows, sizes.trains() ? sizes.logits_rows() : sizes.shape.rows());
}

/// Whether an evaluation's residual stream stays in one place. Where stages or slices of rows end,
/// no piece of a micro-batch is as large as two of it.
bool evaluates_in_place(const ActivationSizes& sizes) {
  return sizes.pipelined() || sizes.sequence_parallel();
}

/// Only what inference needs. Tokens are already cut.
EvaluationMemory cut_evaluation(const ActivationSizes& sizes, const Passing& passing,
                                Cutter& kept) {
  EvaluationMemory memory;
  const bool in_place = evaluates_in_place(sizes);
  if (!in_place) {
    for (Values& stream : memory.stream) {
      stream = kept.take_values(sizes.stream_elems(), sizes.compute);
    }
  } else if (!sizes.trains()) {  // training works in the stream of its gradients
    memory.stream.fill(kept.take_values(sizes.stream_elems(), sizes.compute));
  }
  memory.block = cut_block(sizes, passing, again_of(sizes, 0), kept);
  if (sizes.place.predicts()) {
    memory.ln_f = cut_norm(sizes.layers.ln_f, {}, sizes.own_rows(), kept);
    memory.normed = in_place ? kept.take_values(sizes.whole_elems(), sizes.compute)
                             : memory.stream[(sizes.config.layers + 1) % 2];
    memory.logits_rows = evaluated_rows(sizes);
    memory.logits = kept.take_values(sizes.logits_elems(memory.logits_rows), sizes.compute);
  }
  memory.bytes = kept.bytes();
  return memory;
}

/// Cuts what a rank keeps: what its layers share, then each slot, then the logits.
class TrainingCut {
 public:
  TrainingCut(const ActivationSizes& sizes, const Passing& passing, Cutter& kept,
              DecoderActivations& all)
      : sizes_{sizes}, passing_{passing}, kept_{kept}, all_{all} {}

  void cut() {
    all_.logits_rows = sizes_.logits_rows();
    all_.logits_bytes = static_cast<std::size_t>(sizes_.logits_elems(sizes_.logits_rows())) *
                        size_of(sizes_.compute);
    cut_shared();
    for (int slot = 0; slot < sizes_.place.slots; ++slot) { cut_slot(); }
    if (sizes_.pipelined() && sizes_.place.predicts()) { take_logits(); }
    lend_logits();
    borrow_for_evaluation();
  }

 private:
  void cut_shared() {
    for (std::int64_t layer = 0; layer < sizes_.config.layers; ++layer) {
      all_.recomputed.push_back(sizes_.options->recompute.applies_to(layer));
    }
    const bool any = std::ranges::any_of(sizes_.place.stages, [this](const DecoderStage& stage) {
      const auto first = all_.recomputed.begin() + stage.first_layer;
      return std::find(first, first + stage.layers, true) != first + stage.layers;
    });
    if (!any) { return; }
    const std::size_t before = kept_.at();
    shared_ = cut_block(sizes_, passing_, {}, kept_);
    all_.shared_bytes = kept_.at() - before;
  }

  void cut_slot() {
    std::vector<StageActivations>& slot = all_.slots.emplace_back();
    const std::size_t first = kept_.at();
    for (const DecoderStage& stage : sizes_.place.stages) {
      kept_.go_back(first);
      slot.push_back(cut_stage(stage));
    }
    kept_.go_to_end();
  }

  [[nodiscard]] StageActivations cut_stage(const DecoderStage& stage) {
    StageActivations at;
    at.blocks.reserve(static_cast<std::size_t>(stage.layers));
    begun_ = kept_.at();
    // First, at the same place in every stage of a slot: an evaluation has one for all of them.
    if (sizes_.options->packed) { at.first_keys = take_tokens(); }
    if (stage.embeds) { at.inputs = take_tokens(); }
    if (stage.predicts) { at.targets = take_tokens(); }
    at.residual.push_back(stage.embeds ? take_boundary() : Values{nullptr, sizes_.compute});
    end_part(at);
    for (std::int64_t layer = 0; layer < stage.layers; ++layer) {
      const std::int64_t of_all = stage.first_layer + layer;
      const bool recomputed = all_.recomputed[static_cast<std::size_t>(of_all)];
      at.blocks.push_back(for_layer(
          recomputed ? shared_ : cut_block(sizes_, passing_, again_of(sizes_, of_all), kept_),
          sizes_.config, of_all, at.residual.back()));
      at.blocks.back().attn.first_key = at.first_keys;
      if (sizes_.place.divided) { at.deferred.push_back(cut_deferred(sizes_, kept_)); }
      const bool last = layer + 1 == stage.layers;
      at.residual.push_back(!last            ? take_boundary()
                            : stage.predicts ? take_stream()
                                             : Values{nullptr, sizes_.compute});
      end_part(at);
    }
    if (stage.predicts) {
      at.ln_f = cut_norm(sizes_.layers.ln_f, at.residual.back(), sizes_.own_rows(), kept_);
      at.normed = kept_.take_values(sizes_.whole_elems(), sizes_.compute);
      if (!sizes_.pipelined()) { take_logits(); }
    }
    end_part(at);
    return at;
  }

  [[nodiscard]] std::int32_t* take_tokens() {
    return kept_.take<std::int32_t>(sizes_.shape.rows());
  }

  [[nodiscard]] Values take_stream() {
    return kept_.take_values(sizes_.stream_elems(), sizes_.compute);
  }

  [[nodiscard]] Values take_boundary() {
    if (sizes_.options->boundaries == Boundaries::host) { return {nullptr, sizes_.compute}; }
    return take_stream();
  }

  void take_logits() {
    all_.logits = kept_.take_values(sizes_.logits_elems(sizes_.logits_rows()), sizes_.compute);
  }

  void end_part(StageActivations& at) {
    at.part_bytes.push_back(kept_.at() - begun_);
    begun_ = kept_.at();
  }

  // The amount depends only on sizes, and so do the pieces of attention's backward.
  void lend_logits() {
    if (!sizes_.place.predicts()) { return; }
    const auto held = static_cast<std::int64_t>(all_.logits_bytes / sizeof(float));
    const std::int64_t lent = std::min(held, sizes_.backward_workspace_elems);
    if (lent <= sizes_.workspace_elems) { return; }
    all_.lent_bytes = static_cast<std::size_t>(lent) * sizeof(float);
    for (std::vector<StageActivations>& slot : all_.slots) {
      for (StageActivations& stage : slot) {
        for (Block::Saved& block : stage.blocks) {
          block.attn.lent = static_cast<float*>(all_.logits.data);
          block.attn.lent_elems = lent;
        }
      }
    }
  }

  // Between steps no data of a micro-batch is needed. Of stages that share a slot, the last has
  // everything except the inputs, which are unused once the targets are loaded; documents lie at
  // one place in all of them.
  void borrow_for_evaluation() {
    const StageActivations& first = all_.slots.front().front();
    const StageActivations& last = all_.slots.front().back();
    Cutter count;
    static_cast<void>(cut_evaluation(sizes_, passing_, count));
    all_.inputs = first.inputs;
    all_.targets = last.targets;
    all_.first_keys = last.first_keys;
    const bool in_place = evaluates_in_place(sizes_);
    const std::array<Values, 2> stream = in_place ? std::array{all_.stream, all_.stream}
                                                  : std::array{last.residual.back(), last.normed};
    all_.evaluation = {.stream = stream,
                       .block = last.blocks.front(),
                       .ln_f = last.ln_f,
                       .normed = in_place ? last.normed : stream[(sizes_.config.layers + 1) % 2],
                       .logits = all_.logits,
                       .logits_rows = evaluated_rows(sizes_),
                       .bytes = count.bytes()};
  }

  const ActivationSizes& sizes_;
  const Passing& passing_;
  Cutter& kept_;
  DecoderActivations& all_;
  Block::Saved shared_{};
  std::size_t begun_ = 0;  // where the current part begins
};

/// A row of logits of several ranks, as floats.
void cut_row(const ActivationSizes& sizes, Cutter& passing, EvaluationMemory& memory) {
  const TensorRanks& ranks = sizes.layers.ranks;
  if (ranks.size() == 1 && !sizes.pipelined()) { return; }
  memory.row_part_elems = sizes.row_part_elems;
  memory.row = passing.take<float>(ranks.size() * memory.row_part_elems);
}

}  // namespace

ActivationSizes activation_sizes(const DecoderConfig& config, const DecoderOptions& options,
                                 std::int64_t batch, World& world, const ModelOptions& model) {
  const DecoderLayers layers{
      world, config, options, model,
      TensorRanks::without_channel(world, model.mesh, tensor_options(options))};
  const Stream stream = world.compute_stream();
  const std::vector<Range> parts = vocab_parts(world, config.vocab, layers.ranks.size());
  // With dropout, the kernels cannot use more.
  const auto backward_elems = options.dropout > 0.0F ? kernels::attention_workspace_elems
                                                     : kernels::attention_backward_workspace_elems;
  // Layers with a window may run another kernel than those without, and on sequences that a window
  // covers (Decoder::next_logits) the kernels of those without.
  const auto most_elems = [&](const auto& elems) {
    const auto of_shape = [&](std::int64_t seq, std::int64_t window) {
      return elems(layers.block.attention().kernel_shape({batch, seq}, window), model.compute,
                   stream);
    };
    std::int64_t most = 0;
    for (const std::int64_t layer : {std::int64_t{0}, config.layers - 1}) {
      const std::int64_t window = config.window_of(layer);
      most = std::max(most, of_shape(config.seq, window));
      if (window > 0) { most = std::max(most, of_shape(std::min(config.seq, window), 0)); }
    }
    return most;
  };
  return {.config = config,
          .options = &options,
          .place = place_of(config, options, world, model),
          .layers = layers,
          .shape = {batch, config.seq},
          .compute = model.compute,
          .purpose = model.purpose,
          .workspace_elems = most_elems(kernels::attention_workspace_elems),
          .backward_workspace_elems = most_elems(backward_elems),
          .row_part_elems = std::ranges::max(parts | std::views::transform(&Range::elems))};
}

DecoderActivations cut_activations(const ActivationSizes& sizes, Cutter& kept, Cutter& passing) {
  const std::int64_t rows = sizes.shape.rows();
  DecoderActivations all;
  if (sizes.trains()) {
    if (sizes.place.predicts()) { all.loss = passing.take<double>(2); }
    all.stream = passing.take_values(sizes.stream_elems(), sizes.compute);
    all.scratch = passing.take_values(sizes.scratch_elems(), sizes.compute);
  }
  double* const evaluated = passing.take<double>(2);
  Passing works_in{.workspace = passing.take<float>(sizes.workspace_elems),
                   .scratch = all.scratch,
                   .wide_scratch = {},
                   .whole = {},
                   .rotary = {}};
  if (const std::int64_t elems = sizes.rotary_elems(); elems > 0) {
    all.rotary = passing.take<float>(2 * elems);
    if (all.rotary != nullptr) { works_in.rotary = {all.rotary, all.rotary + elems}; }
  }
  if (all.scratch) {
    works_in.wide_scratch = all.scratch.at(sizes.whole_elems());
  } else if (!sizes.trains() && sizes.config.head_norms) {
    works_in.wide_scratch =
        passing.take_values(rows * sizes.layers.block.attention().packed(), sizes.compute);
  }
  if (sizes.sequence_parallel()) {
    // In training it comes after what layers write to the scratch in forward.
    const std::int64_t last = sizes.scratch_elems() - sizes.whole_elems();
    all.whole = !sizes.trains() ? passing.take_values(sizes.whole_elems(), sizes.compute)
                : all.scratch   ? all.scratch.at(last)
                                : Values{};
    works_in.whole = all.whole;
  }
  if (sizes.place.predicts()) {
    const std::int64_t most = sizes.trains() ? sizes.logits_rows() : evaluated_rows(sizes);
    const std::int64_t elems = sizes.layers.loss.statistics_elems(most);
    if (elems > 0) { all.statistics = passing.take<float>(elems); }
  }
  if (sizes.trains()) {
    TrainingCut{sizes, works_in, kept, all}.cut();
  } else {
    if (sizes.place.embeds()) { all.inputs = kept.take<std::int32_t>(rows); }
    if (sizes.place.predicts()) { all.targets = kept.take<std::int32_t>(rows); }
    if (sizes.options->packed) { all.first_keys = kept.take<std::int32_t>(rows); }
    all.evaluation = cut_evaluation(sizes, works_in, kept);
  }
  all.evaluation.loss = evaluated;
  cut_row(sizes, passing, all.evaluation);
  return all;
}

}  // namespace tessera::nn

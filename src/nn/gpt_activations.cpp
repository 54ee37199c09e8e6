#include "nn/gpt_activations.hpp"

#include <algorithm>

#include "tessera/kernels/attention.hpp"

namespace tessera::nn {
namespace {

LayerNorm::Saved cut_norm(ConstValues x, std::int64_t rows, Cutter& kept) {
  return {.x = x, .mean = kept.take<float>(rows), .inverse_std = kept.take<float>(rows)};
}

/// What a layer works in, beside what it keeps.
struct Passing {
  float* workspace;     ///< attention's
  Values scratch;       ///< Block::scratch_elems of gradients, idle in forward
  Values wide_scratch;  ///< what of it begins behind a stream: 4 * hidden a row and more
};

/// Which outputs a layer computes again in backward: in forward they lie in the scratch.
struct Again {
  bool gelu = false;
  bool norms = false;
};

Again again_of(const ActivationSizes& sizes, std::int64_t layer) {
  if (sizes.purpose == Purpose::inference) { return {}; }
  const Recompute& recompute = sizes.options->recompute;
  return {.gelu = recompute.gelu_of(layer), .norms = recompute.layer_norms_of(layer)};
}

Block::Saved cut_block(const ActivationSizes& sizes, const Passing& passing, Again again,
                       Cutter& kept) {
  const std::int64_t rows = sizes.shape.rows();
  const std::int64_t values = rows * sizes.config.hidden;
  const auto norm = [&] {
    return again.norms ? passing.scratch : kept.take_values(values, sizes.compute);
  };
  Block::Saved saved{};
  saved.norms_again = again.norms;
  saved.normed_1 = norm();
  saved.middle = kept.take_values(values, sizes.compute);
  saved.normed_2 = norm();
  saved.ln_1 = cut_norm({}, rows, kept);
  saved.attn = {.x = saved.normed_1,
                .qkv = kept.take_values(3 * values, sizes.compute),
                .mixed = kept.take_values(values, sizes.compute),
                .log_sum_exp = kept.take<float>(rows * sizes.config.heads),
                .workspace = passing.workspace};
  saved.ln_2 = cut_norm(saved.middle, rows, kept);
  saved.mlp = {
      .x = saved.normed_2,
      .wide = kept.take_values(4 * values, sizes.compute),
      .activated = again.gelu ? passing.wide_scratch : kept.take_values(4 * values, sizes.compute),
      .gelu_again = again.gelu};
  return saved;
}

Block::Saved with_input(Block::Saved saved, ConstValues x) {
  saved.ln_1.x = x;
  return saved;
}

std::int64_t evaluated_rows(const ActivationSizes& sizes) {
  const bool trains = sizes.purpose == Purpose::training;
  return std::min(kEvaluatedRows, trains ? sizes.logits_rows() : sizes.shape.rows());
}

/// What is needed for inference alone. `all.inputs` and `all.targets` are cut already.
EvaluationMemory cut_evaluation(const ActivationSizes& sizes, const Passing& passing,
                                Cutter& kept) {
  const std::int64_t rows = sizes.shape.rows();
  EvaluationMemory memory;
  for (Values& stream : memory.stream) {
    stream = kept.take_values(rows * sizes.config.hidden, sizes.compute);
  }
  memory.block = cut_block(sizes, passing, again_of(sizes, 0), kept);
  memory.ln_f = cut_norm({}, rows, kept);
  memory.logits_rows = evaluated_rows(sizes);
  memory.logits =
      kept.take_values(memory.logits_rows * sizes.config.logits_row_elems(), sizes.compute);
  memory.bytes = kept.bytes();
  return memory;
}

/// Cuts the stages of a micro-batch one after the other.
class TrainingCut {
 public:
  TrainingCut(const ActivationSizes& sizes, const Passing& passing, Cutter& kept,
              GPTActivations& all)
      : sizes_{sizes}, passing_{passing}, kept_{kept}, all_{all} {}

  void cut() {
    const auto layers = static_cast<std::size_t>(sizes_.config.layers);
    all_.blocks.reserve(layers);
    all_.residual.reserve(layers + 1);
    all_.stage_bytes.reserve(layers + 2);
    cut_shared();
    all_.residual.push_back(take_boundary());
    end_stage();
    for (std::int64_t layer = 0; layer < sizes_.config.layers; ++layer) {
      const bool recomputed = all_.recomputed[static_cast<std::size_t>(layer)];
      all_.blocks.push_back(with_input(
          recomputed ? shared_ : cut_block(sizes_, passing_, again_of(sizes_, layer), kept_),
          all_.residual.back()));
      const bool last = layer + 1 == sizes_.config.layers;
      all_.residual.push_back(last ? take_stream() : take_boundary());
      end_stage();
    }
    all_.ln_f = cut_norm(all_.residual.back(), sizes_.shape.rows(), kept_);
    all_.normed = take_stream();
    all_.logits_rows = sizes_.logits_rows();
    all_.logits = kept_.take_values(sizes_.logits_elems(), sizes_.compute);
    end_stage();
    lend_logits();
    borrow_for_evaluation();
  }

 private:
  void cut_shared() {
    for (std::int64_t layer = 0; layer < sizes_.config.layers; ++layer) {
      all_.recomputed.push_back(sizes_.options->recompute.applies_to(layer));
    }
    if (std::ranges::find(all_.recomputed, true) == all_.recomputed.end()) { return; }
    const std::size_t before = kept_.bytes();
    shared_ = cut_block(sizes_, passing_, {}, kept_);
    all_.shared_bytes = kept_.bytes() - before;
    staged_ += all_.shared_bytes;
  }

  [[nodiscard]] Values take_stream() {
    return kept_.take_values(sizes_.shape.rows() * sizes_.config.hidden, sizes_.compute);
  }

  [[nodiscard]] Values take_boundary() {
    if (sizes_.options->boundaries == Boundaries::host) { return {nullptr, sizes_.compute}; }
    return take_stream();
  }

  void end_stage() {
    all_.stage_bytes.push_back(kept_.bytes() - staged_);
    staged_ = kept_.bytes();
  }

  // How much depends on sizes alone, and so do the pieces in which attention goes backward.
  void lend_logits() {
    const std::size_t bytes =
        static_cast<std::size_t>(sizes_.logits_elems()) * size_of(sizes_.compute);
    const auto held = static_cast<std::int64_t>(bytes / sizeof(float));
    const std::int64_t lent = std::min(held, sizes_.backward_workspace_elems);
    if (lent <= sizes_.workspace_elems) { return; }
    all_.lent_bytes = static_cast<std::size_t>(lent) * sizeof(float);
    for (Block::Saved& block : all_.blocks) {
      block.attn.lent = static_cast<float*>(all_.logits.data);
      block.attn.lent_elems = lent;
    }
  }

  // Between steps nothing of a micro-batch is needed.
  void borrow_for_evaluation() {
    Cutter count;
    static_cast<void>(cut_evaluation(sizes_, passing_, count));
    all_.evaluation = {.stream = {all_.residual.back(), all_.normed},
                       .block = all_.blocks.front(),
                       .ln_f = all_.ln_f,
                       .logits = all_.logits,
                       .logits_rows = evaluated_rows(sizes_),
                       .bytes = count.bytes()};
  }

  const ActivationSizes& sizes_;
  const Passing& passing_;
  Cutter& kept_;
  GPTActivations& all_;
  Block::Saved shared_{};
  std::size_t staged_ = 0;
};

}  // namespace

ActivationSizes activation_sizes(const GPTConfig& config, const GPTOptions& options,
                                 std::int64_t batch, World& world, const ModelOptions& model) {
  const kernels::AttentionShape attention{batch, config.seq, config.heads, config.head_size()};
  const Stream stream = world.compute_stream();
  // What is dropped is computed by kernels that have no use for more.
  const auto backward_elems = options.dropout > 0.0F ? kernels::attention_workspace_elems
                                                     : kernels::attention_backward_workspace_elems;
  return {.config = config,
          .options = &options,
          .shape = {batch, config.seq},
          .compute = model.compute,
          .purpose = model.purpose,
          .workspace_elems = kernels::attention_workspace_elems(attention, model.compute, stream),
          .backward_workspace_elems = backward_elems(attention, model.compute, stream)};
}

GPTActivations cut_activations(const ActivationSizes& sizes, Cutter& kept, Cutter& passing) {
  const std::int64_t rows = sizes.shape.rows();
  const std::int64_t values = rows * sizes.config.hidden;
  const bool trains = sizes.purpose == Purpose::training;
  GPTActivations all;
  if (trains) {
    all.loss = passing.take<double>(1);
    all.stream = passing.take_values(values, sizes.compute);
    all.scratch = passing.take_values((sizes.options->dropout > 0 ? 6 : 5) * values, sizes.compute);
  }
  double* const evaluated = passing.take<double>(1);
  const Passing works_in{passing.take<float>(sizes.workspace_elems), all.scratch,
                         all.scratch ? all.scratch.at(values) : Values{}};
  all.inputs = kept.take<std::int32_t>(rows);
  all.targets = kept.take<std::int32_t>(rows);
  if (trains) {
    TrainingCut{sizes, works_in, kept, all}.cut();
  } else {
    all.evaluation = cut_evaluation(sizes, works_in, kept);
  }
  all.evaluation.loss = evaluated;
  return all;
}

}  // namespace tessera::nn

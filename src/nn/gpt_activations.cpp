#include "nn/gpt_activations.hpp"

namespace tessera::nn {
namespace {

LayerNorm::Saved cut_norm(ConstValues x, std::int64_t rows, Cutter& kept) {
  return {.x = x, .mean = kept.take<float>(rows), .inverse_std = kept.take<float>(rows)};
}

Block::Saved cut_block(const GPTConfig& config, BatchShape shape, DType compute, ConstValues x,
                       float* workspace, Cutter& kept) {
  const std::int64_t values = shape.rows() * config.hidden;
  Block::Saved saved{};
  saved.normed_1 = kept.take_values(values, compute);
  saved.middle = kept.take_values(values, compute);
  saved.normed_2 = kept.take_values(values, compute);
  saved.ln_1 = cut_norm(x, shape.rows(), kept);
  saved.attn = {.x = saved.normed_1,
                .qkv = kept.take_values(3 * values, compute),
                .mixed = kept.take_values(values, compute),
                .log_sum_exp = kept.take<float>(shape.rows() * config.heads),
                .workspace = workspace};
  saved.ln_2 = cut_norm(saved.middle, shape.rows(), kept);
  saved.mlp = {.x = saved.normed_2,
               .wide = kept.take_values(4 * values, compute),
               .activated = kept.take_values(4 * values, compute)};
  return saved;
}

}  // namespace

GPTActivations cut_activations(const GPTConfig& config, BatchShape shape, DType compute,
                               std::int64_t workspace_elems, Cutter& kept, Cutter& passing) {
  const std::int64_t rows = shape.rows();
  const std::int64_t values = rows * config.hidden;
  GPTActivations all;
  all.loss = passing.take<double>(1);
  all.stream = passing.take_values(values, compute);
  all.scratch = passing.take_values(5 * values, compute);
  float* workspace = passing.take<float>(workspace_elems);

  std::size_t staged = kept.bytes();
  const auto end_stage = [&] {
    all.stage_bytes.push_back(kept.bytes() - staged);
    staged = kept.bytes();
  };
  all.inputs = kept.take<std::int32_t>(rows);
  all.targets = kept.take<std::int32_t>(rows);
  all.residual.push_back(kept.take_values(values, compute));
  end_stage();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    all.blocks.push_back(cut_block(config, shape, compute, all.residual.back(), workspace, kept));
    all.residual.push_back(kept.take_values(values, compute));
    end_stage();
  }
  all.ln_f = cut_norm(all.residual.back(), rows, kept);
  all.normed = kept.take_values(values, compute);
  all.logits = kept.take_values(rows * config.vocab, compute);
  end_stage();
  return all;
}

}  // namespace tessera::nn

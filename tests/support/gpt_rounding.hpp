#pragma once

#include <algorithm>

#include "support/rounding.hpp"
#include "tessera/nn/decoder_config.hpp"

// The roundings of a decoder in fp32. exp, tanh and the like count 8.
namespace tessera::test {

/// Mean, variance and scaling, or in backward two sums and scaling.
inline double norm_roundings(const nn::DecoderConfig& gpt) {
  return 2 * sum_roundings(gpt.hidden) + 8;
}
/// Two products and an activation, perhaps times a gate's values.
inline double mlp_roundings(const nn::DecoderConfig& gpt) {
  return sum_roundings(gpt.hidden) + 16 + (gpt.gated() ? 2 : 0) + sum_roundings(gpt.mlp_elems());
}
/// The norm and the rotation of queries or keys.
inline double head_roundings(const nn::DecoderConfig& gpt) {
  return (gpt.head_norms ? 2 * sum_roundings(gpt.head_size()) + 8 : 0) +
         (gpt.rotated_elems() > 0 ? 3 : 0);
}
/// The largest number of terms of a product from a hidden vector, or to one.
inline std::int64_t projected(const nn::DecoderConfig& gpt) {
  return std::max(gpt.hidden, gpt.heads * gpt.head_size());
}

/// In sequence between tokens and logits.
inline double logit_roundings(const nn::DecoderConfig& gpt) {
  const double q = sum_roundings(projected(gpt));  // or k, v, projection
  const double scores = sum_roundings(gpt.head_size()) + head_roundings(gpt);
  const double softmax_and_mix = 2 * sum_roundings(gpt.seq) + 8;
  const double attention = q + scores + softmax_and_mix + q;
  const double layer = 2 * norm_roundings(gpt) + attention + mlp_roundings(gpt) + 2;
  return static_cast<double>(gpt.layers) * layer + norm_roundings(gpt) + sum_roundings(gpt.hidden);
}

/// Between tokens and a loss. Losses of tokens are added in fp64.
inline double loss_roundings(const nn::DecoderConfig& gpt) {
  return logit_roundings(gpt) + sum_roundings(gpt.vocab) + 8;
}

/// Between tokens and a gradient: the passes forward and backward, and the sum over the `tokens` of
/// a step.
inline double gradient_roundings(const nn::DecoderConfig& gpt, std::int64_t tokens) {
  const double projection = sum_roundings(projected(gpt));
  const double scores = sum_roundings(gpt.head_size()) + head_roundings(gpt);
  const std::int64_t group = gpt.heads / gpt.key_heads();
  // dv; dscores; dq, dk. The gradient of a head of keys is a sum over its query heads.
  const double of_tokens = 2 * sum_roundings(gpt.seq) + sum_roundings(gpt.seq * group);
  const std::int64_t packed = (gpt.heads + 2 * gpt.key_heads()) * gpt.head_size();
  const double attention = projection + scores + of_tokens + sum_roundings(packed);
  const double layer = 2 * norm_roundings(gpt) + attention + mlp_roundings(gpt) + 2;
  return loss_roundings(gpt) + 4 + sum_roundings(gpt.vocab) + norm_roundings(gpt) +
         static_cast<double>(gpt.layers) * layer + sum_roundings(tokens);
}

/// Bounds of what two runs of a GPT in fp32 differ by, whatever the order of their sums.
struct GPTBounds {
  double logits = 0.0;    ///< relative to their norm
  double loss = 0.0;      ///< relative to the loss, with equal parameters
  double gradient = 0.0;  ///< relative to a tensor's largest element, or to its norm
  /// Relative to the first loss. Gradients that are off by a part e of their size change each step,
  /// and thus what steps have changed the loss by, by a part e. That change is at most the first
  /// loss. Assumption: the path of the steps amplifies no difference. It holds for 50 steps of
  /// these GPTs, whose functions are smooth; steps of networks with ReLU soon amplify what they
  /// differ by.
  double later_loss = 0.0;
};
inline GPTBounds between_runs(const nn::DecoderConfig& gpt, std::int64_t tokens) {
  const double gradient = chain_difference(gradient_roundings(gpt, tokens));
  const double loss = chain_difference(loss_roundings(gpt));
  return {.logits = chain_difference(logit_roundings(gpt)),
          .loss = loss,
          .gradient = gradient,
          .later_loss = loss + gradient};
}
/// The same of a run against float64.
inline GPTBounds against_exact(const nn::DecoderConfig& gpt, std::int64_t tokens) {
  const GPTBounds two = between_runs(gpt, tokens);
  const double one = 1.0 / std::sqrt(2.0);
  return {.logits = one * two.logits,
          .loss = one * two.loss,
          .gradient = one * two.gradient,
          .later_loss = one * two.later_loss};
}

}  // namespace tessera::test

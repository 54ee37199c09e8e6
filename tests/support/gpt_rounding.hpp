#pragma once

#include "support/rounding.hpp"
#include "tessera/nn/gpt_config.hpp"

// The roundings of a GPT in fp32. exp, tanh and the like count 8.
namespace tessera::test {

/// Mean, variance and scaling, or in backward two sums and scaling.
constexpr double norm_roundings(const nn::GPTConfig& gpt) {
  return 2 * sum_roundings(gpt.hidden) + 8;
}
/// Two products, one with four times as many terms, and GELU.
constexpr double mlp_roundings(const nn::GPTConfig& gpt) {
  return sum_roundings(gpt.hidden) + 16 + sum_roundings(4 * gpt.hidden);
}

/// In sequence between tokens and logits.
constexpr double logit_roundings(const nn::GPTConfig& gpt) {
  const double q = sum_roundings(gpt.hidden);  // or k, v, projection
  const double scores = sum_roundings(gpt.hidden / gpt.heads);
  const double softmax_and_mix = 2 * sum_roundings(gpt.seq) + 8;
  const double attention = q + scores + softmax_and_mix + q;
  const double layer = 2 * norm_roundings(gpt) + attention + mlp_roundings(gpt) + 2;
  return static_cast<double>(gpt.layers) * layer + norm_roundings(gpt) + sum_roundings(gpt.hidden);
}

/// Between tokens and a loss. Losses of tokens are added in fp64.
constexpr double loss_roundings(const nn::GPTConfig& gpt) {
  return logit_roundings(gpt) + sum_roundings(gpt.vocab) + 8;
}

/// Between tokens and a gradient: the passes forward and backward, and the sum over the `tokens` of
/// a step.
constexpr double gradient_roundings(const nn::GPTConfig& gpt, std::int64_t tokens) {
  const double projection = sum_roundings(gpt.hidden);
  const double scores = sum_roundings(gpt.hidden / gpt.heads);
  const double of_tokens = 3 * sum_roundings(gpt.seq);  // dv; dscores; dq, dk
  const double attention = projection + scores + of_tokens + sum_roundings(3 * gpt.hidden);
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
inline GPTBounds between_runs(const nn::GPTConfig& gpt, std::int64_t tokens) {
  const double gradient = chain_difference(gradient_roundings(gpt, tokens));
  const double loss = chain_difference(loss_roundings(gpt));
  return {.logits = chain_difference(logit_roundings(gpt)),
          .loss = loss,
          .gradient = gradient,
          .later_loss = loss + gradient};
}
/// The same of a run against float64.
inline GPTBounds against_exact(const nn::GPTConfig& gpt, std::int64_t tokens) {
  const GPTBounds two = between_runs(gpt, tokens);
  const double one = 1.0 / std::sqrt(2.0);
  return {.logits = one * two.logits,
          .loss = one * two.loss,
          .gradient = one * two.gradient,
          .later_loss = one * two.later_loss};
}

}  // namespace tessera::test

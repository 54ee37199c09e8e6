#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/nn/gpt.hpp"

namespace tessera::nn {

/// How the next token is drawn from logits.
struct Sampler {
  float temperature = 1.0F;  ///< logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;    ///< only among the k most likely; 0: among all
  float top_p = 1.0F;  ///< only among the most likely that together have at least this probability
  std::uint64_t seed = 1;

  /// ConfigError unless temperature >= 0 and finite, top_k >= 0, 0 < top_p <= 1.
  void validate() const;
  /// The token after `position` others of sample `sample`: depends on these, the logits and the
  /// members alone. Of equally likely ones the lowest comes first. Error if a logit is not finite.
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, std::int64_t sample,
                                  std::int64_t position) const;
};

struct Generation {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t tokens = 0;           ///< to draw after it
  std::int64_t samples = 1;
  Sampler sampler = {};
};

/// *Collective.* The drawn tokens of every sample, on every rank. `gpt` is declared in a model of
/// `world` that can be evaluated. The ranks share the samples out, and each sample is computed by
/// itself, so that it does not depend on the ranks or the strategy. A token sees config().seq
/// tokens before it at most.
/// Errors:  ConfigError for a sampler, a count or a token that cannot be, before any work.
[[nodiscard]] std::vector<std::vector<std::int32_t>> generate(GPT& gpt, World& world,
                                                              const Generation& generation);

}  // namespace tessera::nn

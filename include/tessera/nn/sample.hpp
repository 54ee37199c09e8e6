#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/nn/decoder.hpp"

namespace tessera::nn {

/// How the next token is drawn from logits.
struct Sampler {
  float temperature = 1.0F;  ///< logits are divided by it; 0: the most likely token is drawn
  std::int64_t top_k = 0;    ///< only the k most likely tokens can be drawn; 0: all can
  float top_p = 1.0F;        ///< only the most likely tokens whose probabilities add up to it can
  std::uint64_t seed = 1;    ///< the key of the random numbers

  /// Throws ConfigError unless temperature >= 0 and finite, top_k >= 0, and 0 < top_p <= 1.
  void validate() const;
  /// Draws the token at `position`, from 0, of sample `sample`. The result depends only on these,
  /// the logits (host memory, one per token) and the members. Of equally likely tokens the lowest
  /// comes first. Throws Error if a logit is not finite, and ContractError if there are none.
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, std::int64_t sample,
                                  std::int64_t position) const;
};

/// The arguments of `generate`. All ranks give the same values.
struct Generation {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t tokens = 0;           ///< the number of tokens to draw after the prompt
  std::int64_t samples = 1;          ///< the number of samples
  Sampler sampler = {};              ///< how each token is drawn
};

/// *Collective.* Returns the drawn tokens of every sample, on every rank. `gpt` is declared in a
/// model of `world` that can be evaluated. The samples are divided among the data ranks. Each
/// sample is computed on its own, so that it does not depend on the number of ranks or the
/// strategy; cut products on a mesh change the order of sums in its logits. A token sees at most
/// the config().seq tokens before it.
///
/// Errors: ConfigError for an invalid sampler, an empty prompt, a token outside the vocabulary, or
///         a count outside 1 to 2^30, before any work. Otherwise as Decoder::next_logits and
///         Sampler::draw.
[[nodiscard]] std::vector<std::vector<std::int32_t>> generate(Decoder& gpt, World& world,
                                                              const Generation& generation);

}  // namespace tessera::nn

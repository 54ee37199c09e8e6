#pragma once

#include "support/toy_model.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"

namespace tessera::test {

/// Sizes that no number of ranks divides.
inline constexpr nn::DecoderConfig kSmallGPT{
    .layers = 3, .hidden = 21, .heads = 3, .vocab = 37, .seq = 11};
/// Sequences per rank and micro-batch.
inline constexpr std::int64_t kGPTRunBatch = 2;

/// A training of GPT-2 on tokens predictable from the ones before, with AdamW and clipping.
struct GPTRun {
  nn::DecoderConfig config = kSmallGPT;
  nn::DecoderOptions gpt = {};
  ModelOptions options = {};
  WorldOptions world = {};
  int ranks = 1;
  int steps = 50;
  float lr = 0.01F;
  int first_graph_step = -1;  ///< each step from this one on (0 first) is one graph; below 0: none
};

/// The losses of rank 0 and the final state of all ranks.
[[nodiscard]] ToyOutcome train_gpt(const GPTRun& run);
/// The same on processes; only rank 0's process gets the outcome.
[[nodiscard]] ToyOutcome train_gpt(const GPTRun& run, const StartRanks& start);

}  // namespace tessera::test

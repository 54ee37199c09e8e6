#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tools/measure/timing.hpp"

namespace tessera::bench {

struct StepOptions {
  nn::DecoderConfig model{.layers = 4, .hidden = 256, .heads = 4, .vocab = 1024, .seq = 128};
  std::int64_t batch = 8;  ///< sequences per rank
  int ranks = 2;
  DType precision = DType::fp32;  ///< of parameters and computation
  int shard_group = 0;            ///< of hybrid; 0: all ranks
  int prefetch = 1;
  int rounds = 10;
  std::vector<Strategy> strategies = all_strategies();
};

/// FLOPs of one rank's step by formula, without masking, with backward counted as twice the
/// forward:
///
///   3 * batch * seq * (layers * 2 hidden (2 queries + 2 keys + m mlp) + 4 layers seq queries
///                      + 2 hidden vocab)
///
/// queries and keys: the values of all their heads; m: 3 for a gated MLP, else 2. For a GPT-2 the
/// layers' products are 24 layers hidden^2.
[[nodiscard]] double step_flops(const nn::DecoderConfig& model, std::int64_t batch);

/// How rank 0 spends its time, as fractions of the step.
struct Shares {
  double forward = 0;   ///< computing, in forward scopes
  double backward = 0;  ///< computing, in backward scopes
  double update = 0;    ///< norm, agreement and optimizer
  double waiting = 0;   ///< the rest: for gathers, reductions and the other ranks
  double moving = 0;    ///< rank 0's communication streams at work, concurrently with computation
};

struct StrategySteps {
  Strategy strategy{};
  Series series;
  Series cpu;  ///< processor seconds per rank, of all its threads
  Shares shares;
  double loss = 0;  ///< mean over the ranks, in the last timed step
};

struct StepResult {
  double flops = 0;          ///< of one rank's step
  double product_flops = 0;  ///< of the matrix products that were timed as the limit
  Series products;           ///< times of those products, on all ranks at once
  std::vector<StrategySteps> strategies;

  /// FLOPs per second and rank.
  [[nodiscard]] double product_rate() const { return product_flops / products.median(); }
  /// The strategy's FLOPs per second as a fraction of the products' in the same rounds.
  [[nodiscard]] double limit_ratio(const StrategySteps& steps) const;
};

/// Measures AdamW steps of a GPT on random tokens: the strategies and the products of the limit in
/// turn in each round, without the first two rounds. The shares come from further, traced steps.
[[nodiscard]] StepResult measure_step(const StepOptions& options);

}  // namespace tessera::bench

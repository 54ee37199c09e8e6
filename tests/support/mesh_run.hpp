#pragma once

#include <string>
#include <vector>

#include "support/toy_model.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"

namespace tessera::test {

/// A GPT whose sizes no mesh divides.
inline constexpr nn::DecoderConfig kMeshGPT{
    .layers = 5, .hidden = 60, .heads = 3, .vocab = 257, .seq = 16};

/// A training of GPT-2 on a mesh, or, if that is empty, on one rank. The tokens of a sample depend
/// only on its number in the step's global batch.
struct MeshRun {
  nn::DecoderConfig config = kMeshGPT;
  nn::DecoderOptions gpt = {};
  ModelOptions options = {};
  WorldOptions world = {};
  Optimizer optimizer = AdamW{.lr = 0.001F};
  int steps = 3;
  std::int64_t batch = 1;  ///< sequences per data rank and micro-batch
};

/// Returns the number of ranks, and the number of data ranks.
[[nodiscard]] int ranks_of(const MeshRun& run);
[[nodiscard]] int data_ranks_of(const MeshRun& run);
/// Returns the same training on one rank, with the same global batches, micro-batches and
/// sequences.
[[nodiscard]] MeshRun on_one_rank(const MeshRun& run);

/// The result of a training. Parameters and gradients have the names of gpt2_weight_name.
struct MeshOutcome {
  ToyOutcome seen;                   ///< on rank 0
  std::vector<double> evaluated;     ///< before the first step, by rank of this process
  std::vector<MemoryReport> memory;  ///< at the end, by rank of this process
};

[[nodiscard]] MeshOutcome train_on(const MeshRun& run, const StartRanks& start);
[[nodiscard]] MeshOutcome train_on(const MeshRun& run);
/// Returns the memory that rank `rank` would hold at the end.
[[nodiscard]] MemoryReport planned_on(const MeshRun& run, int rank,
                                      CommKind comm = CommKind::local);

/// The largest difference of an element, relative to the largest of its tensor, and that name.
struct FarthestTensor {
  double difference = 0.0;
  std::string name;
};
[[nodiscard]] FarthestTensor farthest(const std::map<std::string, std::vector<float>>& a,
                                      const std::map<std::string, std::vector<float>>& b);

}  // namespace tessera::test

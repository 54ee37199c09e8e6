#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/engine/checks.hpp"
#include "tessera/engine/loss_scaling.hpp"
#include "tessera/engine/master_weights.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/shard/layout.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera {

enum class Purpose : std::uint8_t {
  training,
  inference,  ///< only ever evaluated: no memory for gradients, master weights or an optimizer
};

struct ModelOptions {
  Strategy strategy = Strategy::ddp;
  /// hybrid without a mesh: S, the neighbouring ranks among which one copy of the model states is
  /// sharded. A divisor of the number of ranks; 0: the ranks of a machine, which must be as many on
  /// each (a rank that only counts stands for a job on one machine).
  int shard_group = 0;
  /// How the ranks are arranged: what the strategy shards is cut along `shard`, and kept once for
  /// each rank along `replicate`. {{"replicate", R}, {"shard", S}} with R * S ranks; zero1, zero2
  /// and zero3 take any, hybrid is zero3 on it, dp and ddp have all ranks along `replicate`. Empty:
  /// what `strategy` and `shard_group` are short for (mesh_of).
  std::vector<MeshDim> mesh = {};
  Purpose purpose = Purpose::training;
  /// Of parameters, and of what is computed with them; a ParameterSpec may say otherwise. Where it
  /// is bf16 or fp16 the optimizer updates fp32 master weights, cut as its own state, and the
  /// parameters are rounded copies: to nearest, bf16 with ties away from zero.
  DType compute = DType::fp32;
  /// How those masters are kept. `remainder`: parameters that are trained are bf16, and fp32 ones
  /// may lie beside them. ConfigError where one is fp16, none is bf16, or the optimizer is
  /// offloaded; from optimize_with for stochastic rounding and a CustomOptimizer.
  MasterWeights master_weights = MasterWeights::fp32;
  /// What backward adds into.
  DType gradient = DType::fp32;
  /// What travels when gradients are reduced, if narrower than `gradient`: fp32 or bf16. Sums are
  /// made in fp32 or wider, in rank order, and rounded once (hybrid: within a shard group, and once
  /// more across groups).
  DType reduce = DType::fp32;
  /// Parameters start on multiples of this many elements, and every shard is one: 64, or a multiple
  /// of it. Moments of 8 bits need a multiple of 256 (kMomentBlock), so that no block of theirs
  /// belongs to two parameters or two ranks.
  std::int64_t align_elems = kAlignElems;
  /// Blocks gathered ahead of the one in use, in forward passes and in backward ones (zero3,
  /// hybrid; if not given, both as forward). The ring has one slot more than the larger of the two.
  int prefetch = 1;
  std::optional<int> prefetch_backward = {};
  /// Of every block that does not say otherwise (zero3, hybrid).
  Reshard reshard = Reshard::after_forward;
  /// Units of at most so many elements, root units too, stay gathered from their first use after an
  /// update until the next (zero3, hybrid): each has a slot of its own. 0: none.
  std::int64_t persist_elems = 0;
  /// Micro-batches (forward and backward of the whole model) in a step.
  int accumulate = 1;
  AccumulateMode accumulate_mode = AccumulateMode::automatic;
  /// `ddp` all-reduces finished units together, once this many bytes have come up.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  /// What the trainer multiplies the gradient of its loss with: see ShardedModel::loss_scale.
  LossScaling loss_scaling = {};
  /// A step whose gradient is not finite is skipped; after so many in a row `step` throws
  /// NumericError that names the origin. 0: never.
  std::int64_t max_skips = 25;
  /// optimizer: the fp32 weights that the optimizer updates, its state and the update itself are
  /// the host's; the device keeps what computation needs. Gradients leave for the host when they
  /// have been reduced, beside backward; `step` enqueues the update, which runs unit by unit beside
  /// the next forward pass, and a unit's first use waits for its own. No bit of any result changes
  /// (docs/offload.md).
  Offload offload = Offload::none;
  /// With `offload`: the fraction of the elements that the optimizer updates, from 0 to below 1,
  /// whose state stays on the device all the same. Whole units, the last declared first.
  float offload_keep = 0.0F;
  Checks checks = Checks::off;
};

}  // namespace tessera

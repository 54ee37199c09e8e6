#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/engine/checks.hpp"
#include "tessera/engine/keep_whole.hpp"
#include "tessera/engine/loss_scaling.hpp"
#include "tessera/engine/master_weights.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/shard/layout.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera {

/// The purpose of a model.
enum class Purpose : std::uint8_t {
  training,   ///< The model is trained, and can be evaluated between steps.
  inference,  ///< The model is only ever evaluated. It has no memory for gradients, master weights
              ///< or an optimizer, and every option that concerns them is refused.
};

/// Sizes of a model's transfers that seldom need another value. They change no bit of a result,
/// except over NCCL, whose sums depend on the size of a transfer.
struct ModelTuning {
  /// The number of blocks that are gathered ahead in backward passes, from 0 to 1024. If it is not
  /// given, ModelOptions::prefetch applies to both.
  std::optional<int> prefetch_backward = {};
  /// ModelOptions::bucket_bytes for the first bucket of a backward pass, which is smaller so that
  /// communication begins early.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  /// The number of slots for the gradients of blocks, from 2 to 1024, each as large as the largest
  /// block's (blocks of unequal size: as for ModelOptions::prefetch). 2 suffice if a micro-batch
  /// uses each block once. A declared order adds the slots that it needs. It is ignored where
  /// gradients are added in place.
  int gradient_slots = 2;
};

/// How a ShardedModel keeps its state, computes and is trained. All ranks give the same values; a
/// model whose ranks differ is refused with ContractError. The defaults train in fp32 under ddp.
///
/// The first five options matter most. The groups below them tune precision, gathering, reduction
/// and memory, and can stay as they are. No option changes a bit of a result unless its comment
/// says so.
///
/// Errors: ConfigError for a value out of range, for options that exclude each other, and for an
///         option without effect, unless its comment says that it is ignored: see `validate`.
struct ModelOptions {
  // The five that matter most.

  /// The parts of the parameters, gradients and optimizer state that each rank keeps: see Strategy.
  Strategy strategy = Strategy::ddp;
  /// The number of neighbouring ranks that share one copy of the model state under hybrid without a
  /// mesh. It divides the number of ranks. 0: the ranks of one machine; every machine must then
  /// have equally many (a simulated job is on one machine). Under any other strategy it must be 0.
  /// It changes results by rounding, since sums are added in another order.
  int shard_group = 0;
  /// The dtype of parameters and activations: fp32, bf16 or fp16. A ParameterSpec may choose
  /// another dtype for its parameter. With bf16 or fp16 the optimizer updates fp32 master weights,
  /// which are sharded like its state, and the parameters are copies of them, rounded to nearest
  /// (bf16 with ties away from zero). It changes results.
  DType compute = DType::fp32;
  /// The number of micro-batches in a step, 1 or more. A micro-batch is one forward and one
  /// backward of the whole model; the step averages over all of them.
  int accumulate = 1;
  /// How thoroughly the model checks its trainer for mistakes: see Checks. `memory` is meant for
  /// writing a trainer; `off` costs nothing.
  Checks checks = Checks::off;

  // The purpose of the model.

  /// Whether the model is trained or only evaluated.
  Purpose purpose = Purpose::training;

  // The arrangement of the ranks.

  /// The named dimensions of the ranks. The strategy shards state along `shard`, and there is one
  /// copy for each rank along `replicate`. {{"replicate", R}, {"shard", S}} has R * S ranks. zero1,
  /// zero2 and zero3 take any mesh, and hybrid is zero3 on it. Under dp and ddp all ranks with data
  /// of their own must be along `replicate`. Empty: the mesh of `strategy` and `shard_group`
  /// (mesh_of).
  ///
  /// `tensor` cuts parameters (ParameterSpec::cut), and `pipe` divides the units
  /// (UnitOptions::pipe). The strategy, any but dp, then applies among the ranks at one place along
  /// both. With `pipe` AccumulateMode::automatic is `deferred`: the micro-batches of a step are
  /// reduced once.
  std::vector<MeshDim> mesh = {};

  // Precision. These change results, except `master_weights`.

  /// How the fp32 master weights of 16-bit parameters are kept. `remainder` takes half the memory
  /// and needs a trained bf16 parameter; other parameters may be fp32. ConfigError from
  /// `materialize` if a trained parameter is fp16 or none is bf16, and from `optimize_with` for
  /// stochastic rounding and for a CustomOptimizer. It is incompatible with `offload` optimizer.
  MasterWeights master_weights = MasterWeights::fp32;
  /// The dtype in which backward accumulates gradients: fp32, bf16 or fp16.
  DType gradient = DType::fp32;
  /// The dtype in which gradients are communicated when they are reduced: fp32 or bf16. It is
  /// ignored unless it is narrower than `gradient`. Sums are formed in fp32 or wider, in rank
  /// order, and rounded once (hybrid rounds once within a shard group and once more across groups).
  DType reduce = DType::fp32;
  /// The factor by which the trainer multiplies the gradient of its loss, so that small fp16
  /// gradients do not vanish, and how it changes: see LossScaling and ShardedModel::loss_scale. The
  /// default scales if `compute` or `gradient` is fp16.
  LossScaling loss_scaling = {};
  /// The number of steps skipped in a row after which `step` throws a NumericError that names the
  /// origin. A step is skipped if its gradient is not finite. 0: no limit.
  std::int64_t max_skips = 25;

  // Gathering, under zero3 and hybrid. Other strategies gather nothing.

  /// The number of blocks, from 0 to 1024, that are gathered ahead of the block in use. The ring
  /// has one slot more than the larger of `prefetch` and `tuning.prefetch_backward`, each as large
  /// as the largest block. Blocks of unequal size are divided into classes with a ring each where
  /// that takes less memory. A larger number hides more of the communication and takes more memory.
  /// It is ignored where nothing is gathered.
  int prefetch = 1;
  /// When a block gives its gathered parameters back; a block's UnitOptions may choose otherwise.
  Reshard reshard = Reshard::after_forward;
  /// Units of at most this many elements, root units too, stay gathered from their first use after
  /// an update to the next update, each in a slot of its own. 0: no unit does. ConfigError from
  /// `materialize` if every unit is larger.
  std::int64_t persist_elems = 0;

  // Reduction of gradients.

  /// When the gradients of several micro-batches are reduced: see AccumulateMode. It is ignored if
  /// `accumulate` is 1. The modes add in different orders, so that results differ by rounding.
  AccumulateMode accumulate_mode = AccumulateMode::automatic;
  /// Under ddp, finished units are all-reduced together once they have this many bytes of
  /// gradients; at least 1. Other strategies ignore it.
  std::size_t bucket_bytes = std::size_t{25} << 20;

  // Memory.

  /// The state that is kept in host memory instead of device memory. `optimizer` moves the fp32
  /// weights that are updated, the optimizer's state and the update itself to the host. Reduced
  /// gradients are copied to the host during backward. `state` keeps the master weights (or
  /// remainders) of 16-bit parameters and the optimizer's state on the host between updates; the
  /// device updates them in pieces, three of which it holds at a time. Either way `step` enqueues
  /// the update, which runs unit by unit during the next forward pass, and the first use of a unit
  /// waits for its update. docs/offload-speed.md says which is faster. ConfigError from
  /// `materialize` if nothing is trained, and from `optimize_with` if the optimizer has no state to
  /// move.
  Offload offload = Offload::none;
  /// The fraction, from 0 to below 1, of the elements that the optimizer updates whose state stays
  /// on the device in spite of `offload`. Whole units stay, the last declared first; ConfigError
  /// from `materialize` if none would. Without `offload` it must be 0.
  float offload_keep = 0.0F;
  /// The number of elements at whose multiples every parameter and every shard begins: a multiple
  /// of 64, up to 2^20. Moments of 8 bits need a multiple of 256 (kMomentBlock), so that no block
  /// of moments belongs to two parameters or two ranks. It moves the cuts between shards, which can
  /// change the last bit of a norm.
  std::int64_t align_elems = kAlignElems;

  /// Whether a unit is kept whole where its shard and its slot would take more memory than the
  /// whole unit: a root unit always, blocks where they are few. Its gradients are decided alike if
  /// `accumulate` is 1; the optimizer's state is sharded in any case. ShardedModel::whole_units
  /// says which units are whole. It is ignored where nothing is sharded.
  KeepWhole keep_whole = KeepWhole::automatic;

  // What is rarely needed.

  /// Sizes that seldom need another value.
  ModelTuning tuning = {};
};

/// Throws ConfigError if a value is out of range, if two options exclude each other or if an option
/// has no effect, in a job of `ranks` ranks. The message quotes the names of options in backticks.
/// A model checks its own options when it is made; a program calls this to check them before it
/// starts its ranks. ShardedModel::materialize checks rules that depend on the units.
void validate(const ModelOptions& options, int ranks);

/// Throws ConfigError if `optimizer` or `update` is incompatible with these options, and
/// ContractError for a number that is not finite or out of range. ShardedModel::optimize_with
/// checks this too, and the rules that depend on the units.
void validate(const ModelOptions& options, const Optimizer& optimizer,
              const OptimizerOptions& update);

/// Throws ConfigError if a step of a model with these options cannot be one CUDA graph
/// (World::run_as_graph). The step checks this too.
void validate_in_graph(const ModelOptions& options);

/// Throws ConfigError if the ranks gather no parameters under `strategy`, so that the option called
/// `option`, such as "prefetch" or "reshard", has no effect.
void require_gathering(Strategy strategy, std::string_view option);

}  // namespace tessera

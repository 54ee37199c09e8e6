#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/gpt_config.hpp"
#include "tessera/nn/recompute.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

enum class GatherLogits : std::uint8_t {
  off,
  on_rank0,  ///< as DataParallel does: rank 0 collects every rank's logits in each forward
};

/// Where the inputs of the layers, which all backward passes need, wait for them.
enum class Boundaries : std::uint8_t {
  device,
  host,  ///< in the rank's host pool, brought back ahead of use; three at most are on the device
};

struct GPTOptions {
  GatherLogits gather_logits = GatherLogits::off;
  /// Of the norms' weights and biases, if not ModelOptions::compute: they are small, and fp32 keeps
  /// what 16 bits round away. Their gradients and the rest of a unit are as without.
  std::optional<DType> norms = {};
  /// Layers that keep their input alone, and share one layer's activations.
  Recompute recompute = {};
  Boundaries boundaries = Boundaries::device;
  /// With this probability training drops each element of the embedding's output, each of the
  /// probabilities with which a token looks at others, and each element of both of a layer's
  /// additions to the residual stream, as GPT-2 does. In [0, 1).
  float dropout = 0.0F;
  std::uint64_t dropout_seed = 1;
};

/// Device memory that a GPT takes for a micro-batch, on one rank, beside the model state.
struct GPTBytes {
  /// Kept from forward to backward, a row: 16 hidden a layer, logits_row_elems(); of layers that
  /// are recomputed 1 hidden each, and 15 once; of boundaries in the host pool 3 hidden for all.
  /// For inference 17 hidden, and the logits of 64 rows at most.
  std::size_t activations = 0;
  /// Gradients of activations (6 hidden a row; 7 with dropout; 0 for inference), attention's tiles.
  std::size_t workspace = 0;
  std::size_t host = 0;    ///< in the host pool: with Boundaries::host, 1 hidden a row and layer
  std::size_t gather = 0;  ///< all ranks' logits, on the rank that collects them

  friend bool operator==(const GPTBytes&, const GPTBytes&) = default;
};

/// GPT-2: learned positions, pre-LayerNorm, GELU (tanh), head tied to the token embedding.
///
/// Units: "root" (wte, wpe, ln_f) and one block "h.i" a layer. A forward opens root, h.0 ...
/// h.L-1, root; a backward the reverse.
///
///   described --declare--> bound --forward--> forward done --backward--> bound ...
///   bound, between steps --evaluate, next_logits--> bound
///
/// A layer that is recomputed runs its forward again, but for its last product, in its backward
/// scope: one gather serves both. The last such layer of a forward is still there and does not.
///
/// Dropout numbers the samples of a step as DistributedSampler does, so that a step's masks depend
/// on the seed and the number of the step alone: not on ranks, cut or recomputation.
///
/// Order:   every rank makes the same calls.
/// Memory:  a description holds none. `reserve`, or else the first forward, allocates for its
///          batch what `bytes_needed` says; nothing is allocated after that.
/// Errors:  ContractError for calls out of order. ConfigError, before anything is enqueued, for a
///          token outside the vocabulary.
class GPT {
 public:
  /// ConfigError as GPTConfig::validate, or for a dropout outside [0, 1).
  explicit GPT(const GPTConfig& config, GPTOptions options = {});
  GPT(GPT&& other) noexcept;
  GPT& operator=(GPT&& other) noexcept;
  ~GPT();

  [[nodiscard]] const GPTConfig& config() const noexcept;

  /// Registers the units in `model`, which outlives this object. Once, before `materialize`.
  void declare(ShardedModel& model);
  /// GPT-2's: N(0, 0.02^2), the residual projections by a further 1/sqrt(2 layers), biases 0,
  /// norms 1.
  [[nodiscard]] Initializer initializer(std::uint64_t seed) const;

  /// Allocates for micro-batches of `batch` sequences. ContractError if a batch of another size is
  /// reserved already: ranks average over micro-batches of equal size.
  void reserve(std::int64_t batch);

  /// One micro-batch of this rank: the loss, and the logits turned into their gradient. `inputs`
  /// and `targets` hold batch * config().seq tokens each, in host memory, kept by the caller until
  /// the compute stream has passed (on a CPU: when this returns; `ShardedModel::report` waits).
  void forward(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  /// Adds the gradients of the micro-batch that went forward.
  void backward();
  void forward_backward(std::span<const std::int32_t> inputs,
                        std::span<const std::int32_t> targets) {
    forward(inputs, targets);
    backward();
  }

  /// *Collective.* Between steps, or of a model for inference: this rank's mean loss of whole
  /// sequences, without dropout or gradients; waits for it. In the memory that is reserved (of a
  /// model for inference, the first call reserves what it needs): ContractError for more sequences,
  /// and of a model for training before `reserve` and the first forward, which choose its batch.
  [[nodiscard]] double evaluate(std::span<const std::int32_t> inputs,
                                std::span<const std::int32_t> targets);
  /// *Collective.* As `evaluate`: the logits [vocab] of what follows `tokens`, 1 to config().seq of
  /// them (not the same number on every rank).
  [[nodiscard]] std::vector<float> next_logits(std::span<const std::int32_t> tokens);

  /// Device memory: this rank's mean loss over the micro-batches of the step so far. For
  /// ShardedModel::step. Null of a model for inference.
  [[nodiscard]] const double* loss() const noexcept;
  /// With GatherLogits::on_rank0, on rank 0: the last forward's logits, [ranks * rows, vocab] in
  /// rank order, rows config().logits_row_elems() apart with zeros between, on the compute stream;
  /// empty otherwise.
  [[nodiscard]] ConstView gathered_logits() const noexcept;

  /// What `reserve(batch)` allocates on rank `world.rank()` of a model with these options.
  [[nodiscard]] static GPTBytes bytes_needed(const GPTConfig& config, const GPTOptions& options,
                                             std::int64_t batch, World& world,
                                             const ModelOptions& model = {});

 private:
  static void validate(const GPTOptions& options);

  struct State;
  std::unique_ptr<State> state_;
};

/// The name of a GPT's parameter in Hugging Face's GPT-2 files, without prefix: "wte.weight",
/// "h.0.attn.c_attn.weight", "ln_f.bias".
[[nodiscard]] std::string gpt2_weight_name(const ParameterInfo& parameter);

}  // namespace tessera::nn

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/ignored_target.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tessera/nn/recompute.hpp"
#include "tessera/nn/tensors.hpp"
#include "tessera/pipeline/schedule.hpp"

namespace tessera::nn {

struct Generation;

/// Whether the logits of all ranks are collected.
enum class GatherLogits : std::uint8_t {
  off,       ///< each rank keeps its own
  on_rank0,  ///< rank 0 collects every rank's logits in each forward, as DataParallel does
};

/// The memory that keeps the inputs of the layers between forward and backward.
enum class Boundaries : std::uint8_t {
  device,  ///< device memory
  host,    ///< the rank's host pool; at most three are on the device, copied back ahead of use
};

/// The tokens of a micro-batch, config().seq a sequence, in host memory.
struct MicroBatch {
  std::span<const std::int32_t> inputs;  ///< the tokens
  /// The token after each of them; with DecoderOptions::masked, kIgnoredTarget where the loss
  /// counts none.
  std::span<const std::int32_t> targets;
  /// With DecoderOptions::packed: the place in its sequence at which the document of each token
  /// begins, at most the token's own and never below the place before. Empty: each sequence is one
  /// document.
  std::span<const std::int32_t> first_keys = {};
};

/// How a decoder computes. All ranks give the same values.
struct DecoderOptions {
  /// Whether the logits of all ranks are collected on rank 0.
  GatherLogits gather_logits = GatherLogits::off;
  /// The dtype of the norms' weights and biases. If it is not given, they have
  /// ModelOptions::compute. They are small, and in fp32 they lose nothing to rounding. It changes
  /// neither the dtype of their gradients nor the rest of a unit.
  std::optional<DType> norms = {};
  /// The activations that layers compute again in backward. Layers that are recomputed whole keep
  /// only their input, and share the activations of one layer.
  Recompute recompute = {};
  /// The memory that keeps the inputs of the layers. It changes no bit of a result.
  Boundaries boundaries = Boundaries::device;
  /// The number of rows of logits that are computed at a time; 0: all rows of a micro-batch. It
  /// saves memory if the chunk saves more than the logits lend to attention
  /// (DecoderBytes::workspace).
  ///
  /// Above 0 the head runs in the backward scope of the root unit. For each chunk of rows it
  /// computes logits, loss and gradient, and adds to the gradients of the table and of the residual
  /// stream. No product runs twice. The loss of a micro-batch is therefore complete only after its
  /// backward pass, and a search for values that are not finite begins at ln_f's output
  /// (ForwardScope::watch).
  ///
  /// Results are as exact as with 0, but have other bits: the loss is added by chunks in fp64, the
  /// table's gradient by chunks in order, each rounded to its dtype, and on CUDA products of fewer
  /// rows may add in another order. All strategies still have the same bits.
  std::int64_t head_rows = 0;
  /// The probability, in [0, 1), with which training drops each element of the embedding's output,
  /// each attention probability, and each element of both of a layer's additions to the residual
  /// stream, as GPT-2 does.
  float dropout = 0.0F;
  /// The key of the random numbers of dropout.
  std::uint64_t dropout_seed = 1;
  /// Whether sequences hold several documents (MicroBatch::first_keys): attention ends at them, and
  /// positions begin anew with them.
  bool packed = false;
  /// Whether targets may be kIgnoredTarget. The loss and the gradients are then means over the
  /// targets that count, of all ranks and micro-batches together: a step takes Decoder::count, and
  /// all ranks have the same batch.
  bool masked = false;
  /// Returns the schedule of a step of `micro_batches` on the `ranks` ranks along the mesh's
  /// dimension `pipe`, the same at each call. Decoder describes how its stages share the layers.
  /// The Decoder checks the schedule itself (pipeline::check).
  std::function<pipeline::Schedule(int ranks, int micro_batches)> schedule =
      pipeline::one_forward_one_backward;
  /// Sequence parallelism where the mesh has a dimension `tensor`: see TensorOptions.
  bool sequence_parallel = false;
  /// The number of slices of rows in which a row product is computed: see TensorOptions::slices.
  int tensor_slices = 1;
};

/// Bytes that a decoder allocates for a micro-batch on one rank, beside the model state.
struct DecoderBytes {
  /// Bytes of activations that are kept from forward to backward. They are a layer's input and
  /// Block::Saved per row and layer (16 * hidden values for a GPT-2), 2 * hidden and
  /// logits_row_elems() per row (logits of at most DecoderOptions::head_rows rows, if it is given),
  /// tokens, and fp32 statistics of norms and attention. Layers that are recomputed whole take 1 *
  /// hidden per row each, and Block::Saved once for all. Other layers take DecoderConfig::mlp_elems
  /// less with Recompute::gelu or swiglu, and 2 * hidden less with Recompute::layer_norm or
  /// rms_norm. With Boundaries::host the inputs of all layers take at most 3 * hidden per row.
  /// Inference takes one layer's, and the logits of at most 64 rows.
  ///
  /// On a mesh with `tensor` a rank has its part of each layer's activations (Block::Saved). With
  /// `pipe` it has those of its own stages, for pipeline::most_in_flight micro-batches, and the
  /// tensors between stages (Pipeline::bytes_needed); only the last stage has logits, of one
  /// micro-batch. Divided backward passes keep Block::Deferred more per row and
  /// layer (11 * hidden for a GPT-2).
  std::size_t activations = 0;
  /// Bytes of activations' gradients (the stream's and Block::scratch_elems; 6 * hidden values per
  /// row of a GPT-2, 7 * hidden with dropout; none for inference), of rotary positions' tables
  /// (fp32, DecoderConfig::rotated_elems per position), and of attention's workspace. Its backward
  /// uses the memory of the logits instead if that is larger and attention gains from it.
  std::size_t workspace = 0;
  /// Bytes in the host pool: with Boundaries::host, hidden values per row and layer.
  std::size_t host = 0;
  /// Bytes of all ranks' logits, on the rank that collects them.
  std::size_t gather = 0;

  friend bool operator==(const DecoderBytes&, const DecoderBytes&) = default;
};

/// A decoder: GPT-2, Llama, Qwen, Mistral and what else DecoderConfig can say, with norms before
/// attention and MLP. In 16 bits a norm, a rotation and an activation are computed in fp32 and
/// rounded once.
///
/// Units: "root" (wte, wpe, ln_f, and lm_head if the head is not tied) and one block "h.i" for each
/// layer. A forward opens root, h.0 ... h.L-1, root, and a backward the reverse.
///
/// On a mesh with `tensor`, ranks share the heads, the MLP's values and the vocabulary; where query
/// heads share a head of keys, more ranks than heads of keys are refused. On a mesh
/// with `pipe`, the stages of DecoderOptions::schedule share the layers evenly. A remainder goes
/// one layer each to the middle stages and then to the first, since the last stage has the head.
/// Three units replace root: "tokens" (wte) and "positions" (wpe) at the place of the first stage,
/// and "head" (ln_f, and lm_head, or wte tied to "tokens") at the place of the last. Parameters
/// keep their order and initial values, and gpt2_weight_name (SaveOptions::name) gives them the
/// same names in files. `run` makes a step. The head runs in the backward pass, as with
/// DecoderOptions::head_rows. Boundaries::host and GatherLogits::on_rank0 are refused.
///
///     described --declare--> bound --forward--> forward done --backward--> bound ...
///     bound, between steps --evaluate, next_logits--> bound
///
/// A layer that is recomputed whole runs its forward again, except its last product, in its
/// backward scope: one gather serves both. The last such layer of a forward still has its
/// activations and does not run again. Outputs of GELU and of norms that are recomputed use the
/// memory of gradients in both passes, and need none of their own.
///
/// Dropout numbers the samples of a step as DistributedSampler does, so that a step's masks depend
/// only on the seed and the number of the step, not on ranks, mesh or recomputation.
///
/// Order:   every rank makes the same calls.
/// Memory:  a decoder that is only described holds none. `reserve`, or else the first forward,
///          allocates the bytes that `bytes_needed` returns for its batch; later calls allocate
///          nothing.
/// Errors:  ContractError for calls out of order. ConfigError, before anything is enqueued, for a
///          token outside the vocabulary.
class Decoder {
 public:
  /// Describes a decoder. Throws ConfigError as DecoderConfig::validate does, for a dropout outside
  /// [0, 1), for negative head_rows, and for head_rows together with GatherLogits::on_rank0.
  explicit Decoder(const DecoderConfig& config, DecoderOptions options = {});
  /// Takes over the state of `other`, which can then only be destroyed or assigned to.
  Decoder(Decoder&& other) noexcept;
  /// Takes over the state of `other`, which can then only be destroyed or assigned to.
  Decoder& operator=(Decoder&& other) noexcept;
  /// Frees the memory that was reserved.
  ~Decoder();

  /// Returns the sizes that the decoder was made with.
  [[nodiscard]] const DecoderConfig& config() const noexcept;

  /// Declares the units in `model`, which outlives this object. It is called once, before
  /// `materialize`.
  void declare(ShardedModel& model);
  /// Returns GPT-2's initializer for decoders of all parts: N(0, 0.02^2), with the residual
  /// projections scaled by a further 1/sqrt(2 layers), biases 0 and norms 1.
  [[nodiscard]] Initializer initializer(std::uint64_t seed) const;

  /// *Collective* on a mesh. Allocates memory for micro-batches of `batch` sequences. Throws
  /// ContractError if another batch size is reserved already, since ranks average over
  /// micro-batches of equal size, and ConfigError for a batch below 1 or of more than 2^30 tokens.
  void reserve(std::int64_t batch);

  /// Runs one micro-batch of this rank forward: adds its loss, and replaces the logits by their
  /// gradient. With DecoderOptions::head_rows `backward` does both instead. Its arrays have
  /// batch * config().seq elements each, in host memory. The caller keeps them until the compute
  /// stream has read them: on a CPU until the call returns, on CUDA until `ShardedModel::report`
  /// returns.
  void forward(const MicroBatch& batch);
  /// Runs `forward` on these tokens.
  void forward(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
    forward(MicroBatch{inputs, targets});
  }
  /// Adds the gradients of the last forward's micro-batch.
  void backward();
  /// Runs one micro-batch forward and backward.
  void forward_backward(const MicroBatch& batch) {
    forward(batch);
    backward();
  }
  /// Runs one micro-batch of these tokens forward and backward.
  void forward_backward(std::span<const std::int32_t> inputs,
                        std::span<const std::int32_t> targets) {
    forward_backward(MicroBatch{inputs, targets});
  }

  /// Runs all ModelOptions::accumulate micro-batches of a step forward and backward: one after the
  /// other, or, if the mesh has a dimension `pipe`, by DecoderOptions::schedule. `data` is called
  /// once for each micro-batch, in their order, on every rank. Ranks that differ only along `pipe`
  /// and `tensor` give the same tokens. The caller keeps the tokens of all micro-batches as long as
  /// `forward` requires.
  void run(const std::function<MicroBatch(int micro_batch)>& data);

  /// *Collective.* Waits for this rank's mean loss over whole sequences, or over the targets of
  /// them that count (0 if none does), without dropout or gradients, and returns it. It is called
  /// between steps, or on a model for inference. It uses the reserved memory; on a model for
  /// inference the first call reserves it. Throws ContractError for more sequences than are
  /// reserved, and for a model for training before `reserve` or the first forward, which choose its
  /// batch.
  [[nodiscard]] double evaluate(const MicroBatch& batch);
  /// Runs `evaluate` on these tokens.
  [[nodiscard]] double evaluate(std::span<const std::int32_t> inputs,
                                std::span<const std::int32_t> targets) {
    return evaluate(MicroBatch{inputs, targets});
  }
  /// *Collective.* Returns the logits [vocab] of the token after `tokens`, in host memory. `tokens`
  /// are 1 to config().seq tokens, the same on ranks that differ along `pipe` and `tensor` alone;
  /// elsewhere also their number may differ between ranks. It is called when
  /// `evaluate` may be called, and throws as it does.
  [[nodiscard]] std::vector<float> next_logits(std::span<const std::int32_t> tokens);

  /// Returns the device address of this rank's mean loss over the micro-batches of the step so far,
  /// for ShardedModel::step. With DecoderOptions::head_rows it covers the micro-batches whose
  /// backward pass has run. It is null before memory is reserved, and for a model for inference.
  [[nodiscard]] const double* loss() const noexcept;
  /// Returns what that loss counts, for ShardedModel::step: with DecoderOptions::masked the address
  /// of the number of targets that count, in the same memory as the loss. A step without it makes
  /// means over all targets; Sharded::step gives it.
  [[nodiscard]] LossCount count() const noexcept;
  /// Returns the logits of the last forward, of all ranks, on rank 0 with GatherLogits::on_rank0;
  /// otherwise an empty view. They are in device memory, valid on the compute stream: [ranks *
  /// rows, vocab] in rank order, with rows config().logits_row_elems() apart and zeros between
  /// them.
  [[nodiscard]] ConstView gathered_logits() const noexcept;

  /// Returns the bytes that `reserve(batch)` allocates on rank `world.rank()` for a model with
  /// these options. Throws ConfigError as the constructor and `reserve` do.
  [[nodiscard]] static DecoderBytes bytes_needed(const DecoderConfig& config,
                                                 const DecoderOptions& options, std::int64_t batch,
                                                 World& world, const ModelOptions& model = {});

 private:
  static void validate(const DecoderConfig& config, const DecoderOptions& options);

  friend std::vector<std::vector<std::int32_t>> generate(Decoder& gpt, World& world,
                                                         const Generation& generation);

  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the name of a decoder's parameter in Hugging Face's GPT-2 files, without prefix:
/// "wte.weight", "h.0.attn.c_attn.weight", "ln_f.bias".
[[nodiscard]] std::string gpt2_weight_name(const ParameterInfo& parameter);

}  // namespace tessera::nn

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/memory/buffer.hpp"
#include "tessera/nn/block.hpp"
#include "tessera/nn/gpt.hpp"
#include "tessera/nn/gpt_config.hpp"

namespace tessera::nn {

/// Takes pieces from an arena, or, without one, counts what they would need: so that one walk
/// over the pieces both plans and cuts.
class Cutter {
 public:
  Cutter() = default;
  explicit Cutter(Arena& arena) noexcept : arena_{&arena} {}

  template <class T>
  [[nodiscard]] T* take(std::int64_t elems) {
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(elems) * sizeof(T)));
  }
  [[nodiscard]] Values take_values(std::int64_t elems, DType dtype) {
    return {take_bytes(static_cast<std::size_t>(elems) * size_of(dtype)), dtype};
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  [[nodiscard]] void* take_bytes(std::size_t bytes) {
    const std::size_t need = Arena::need(bytes);
    // A sum that no machine has stays one, so that the device refuses it.
    bytes_ = need > std::numeric_limits<std::size_t>::max() - bytes_
                 ? std::numeric_limits<std::size_t>::max()
                 : bytes_ + need;
    return arena_ == nullptr ? nullptr : arena_->take(bytes);
  }

  Arena* arena_ = nullptr;
  std::size_t bytes_ = 0;
};

/// What decides the sizes of a GPT's memory.
struct ActivationSizes {
  GPTConfig config;
  const GPTOptions* options;
  BatchShape shape;
  DType compute;
  Purpose purpose;
  std::int64_t workspace_elems;           ///< attention's
  std::int64_t backward_workspace_elems;  ///< the most that attention's backward has a use for

  /// The rows of logits that training holds.
  [[nodiscard]] std::int64_t logits_rows() const noexcept {
    return options->head_rows == 0 ? shape.rows() : std::min(shape.rows(), options->head_rows);
  }
  [[nodiscard]] std::int64_t logits_elems() const noexcept {
    return logits_rows() * config.logits_row_elems();
  }
};
[[nodiscard]] ActivationSizes activation_sizes(const GPTConfig& config, const GPTOptions& options,
                                               std::int64_t batch, World& world,
                                               const ModelOptions& model);

/// What an evaluation works in: for training pieces of the micro-batch's memory.
struct EvaluationMemory {
  std::array<Values, 2> stream;  ///< [rows, hidden]: the residual stream before and after a layer
  Block::Saved block{};          ///< of the layer that is computed; its input is one of the two
  LayerNorm::Saved ln_f{};
  Values logits;  ///< [logits_rows, vocab], rows logits_row_elems() apart
  std::int64_t logits_rows = 0;
  double* loss = nullptr;
  std::size_t bytes = 0;  ///< of all that is kept between its kernels
};

/// A GPT's memory for one micro-batch; of Purpose::inference, only what an evaluation needs.
struct GPTActivations {
  // Kept from forward to backward.
  std::int32_t* inputs = nullptr;
  std::int32_t* targets = nullptr;
  std::vector<Block::Saved> blocks;  ///< blocks[l].ln_1.x is the residual stream before layer l
  /// layers + 1 times [rows, hidden]; with Boundaries::host only the last, the others null.
  std::vector<Values> residual;
  LayerNorm::Saved ln_f{};
  Values normed;  ///< [rows, hidden], ln_f's output
  /// [logits_rows, vocab], rows logits_row_elems() apart, then their gradient.
  Values logits;
  std::int64_t logits_rows = 0;
  /// Bytes that come into use with the embedding, with each layer, and with the head.
  std::vector<std::size_t> stage_bytes;
  /// By layer: whether its activations are those that all such layers share, and computed again.
  std::vector<bool> recomputed;
  std::size_t shared_bytes = 0;  ///< that these layers share
  /// Bytes of the logits that attention's backward borrows, where it can use more than its own
  /// workspace. The logits are dead once the head's backward pass is done. 0: nothing is lent.
  std::size_t lent_bytes = 0;

  // Used again and again.
  double* loss = nullptr;
  Values stream;   ///< [rows, hidden], gradient of the residual stream
  Values scratch;  ///< Block::scratch_elems

  EvaluationMemory evaluation;
};

/// Rows of logits that an evaluation holds at a time.
inline constexpr std::int64_t kEvaluatedRows = 64;

/// `kept` gives what lives from forward to backward, `passing` what does not. Values are of the
/// dtype `compute`; tokens, statistics, the loss and attention's tiles of their own.
[[nodiscard]] GPTActivations cut_activations(const ActivationSizes& sizes, Cutter& kept,
                                             Cutter& passing);

}  // namespace tessera::nn

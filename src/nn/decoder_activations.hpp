#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "nn/decoder_layers.hpp"
#include "nn/decoder_stages.hpp"
#include "tessera/base/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/nn/block.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/decoder_config.hpp"

namespace tessera::nn {

/// Takes pieces from an arena or, without one, counts what they would need, so that one walk over
/// the pieces both plans and cuts. Only the cutter uses the arena.
class Cutter {
 public:
  Cutter() = default;
  explicit Cutter(Arena& arena)
      : first_{static_cast<std::byte*>(arena.take(arena.bytes()))}, room_{arena.bytes()} {}

  template <class T>
  [[nodiscard]] T* take(std::int64_t elems) {
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(elems) * sizeof(T)));
  }
  [[nodiscard]] Values take_values(std::int64_t elems, DType dtype) {
    return {take_bytes(static_cast<std::size_t>(elems) * size_of(dtype)), dtype};
  }
  /// Where the next piece begins, in bytes from the first.
  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  /// The next piece begins at `at` again, over pieces that are not in use at the same time.
  void go_back(std::size_t at) noexcept { at_ = at; }
  /// The next piece begins after all pieces.
  void go_to_end() noexcept { at_ = end_; }
  /// The bytes of all pieces.
  [[nodiscard]] std::size_t bytes() const noexcept { return end_; }

 private:
  [[nodiscard]] void* take_bytes(std::size_t bytes) {
    const std::size_t need = Arena::need(bytes);
    void* const piece = first_ == nullptr ? nullptr : first_ + at_;
    // A sum above any machine's memory stays that, so that the device rejects it.
    at_ = need > std::numeric_limits<std::size_t>::max() - at_
              ? std::numeric_limits<std::size_t>::max()
              : at_ + need;
    end_ = std::max(end_, at_);
    expects(first_ == nullptr || end_ <= room_, "Decoder: more memory is cut than was planned");
    return piece;
  }

  std::byte* first_ = nullptr;
  std::size_t room_ = 0;
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

/// What determines the sizes of a decoder's memory.
struct ActivationSizes {
  DecoderConfig config;
  const DecoderOptions* options;
  DecoderPlace place;
  DecoderLayers layers;
  BatchShape shape;
  DType compute;
  Purpose purpose;
  std::int64_t workspace_elems;           ///< for attention
  std::int64_t backward_workspace_elems;  ///< the most that attention's backward can use
  std::int64_t row_part_elems;            ///< the longest part of a row of logits along `tensor`

  [[nodiscard]] bool trains() const noexcept { return purpose == Purpose::training; }
  [[nodiscard]] bool pipelined() const noexcept { return place.schedule.has_value(); }
  [[nodiscard]] bool sequence_parallel() const noexcept { return options->sequence_parallel; }
  /// The rows that this rank has between the products.
  [[nodiscard]] std::int64_t own_rows() const { return layers.ranks.own(shape.rows()).elems; }
  /// The elements of the residual stream.
  [[nodiscard]] std::int64_t stream_elems() const { return own_rows() * config.hidden; }
  /// The elements of [rows, hidden].
  [[nodiscard]] std::int64_t whole_elems() const noexcept { return shape.rows() * config.hidden; }
  [[nodiscard]] std::int64_t scratch_elems() const {
    return layers.block.scratch_elems(shape.rows(), {.p = options->dropout});
  }
  /// The elements of one table of rotary positions.
  [[nodiscard]] std::int64_t rotary_elems() const noexcept {
    return config.seq * config.rotated_elems() / 2;
  }
  /// The rows of logits that training holds.
  [[nodiscard]] std::int64_t logits_rows() const noexcept {
    return options->head_rows == 0 ? shape.rows() : std::min(shape.rows(), options->head_rows);
  }
  /// The elements of `rows` rows of logits.
  [[nodiscard]] std::int64_t logits_elems(std::int64_t rows) const noexcept {
    return rows * layers.embedding.logits_row_elems();
  }
};
[[nodiscard]] ActivationSizes activation_sizes(const DecoderConfig& config,
                                               const DecoderOptions& options, std::int64_t batch,
                                               World& world, const ModelOptions& model);

/// The working memory of an evaluation; in training, pieces of a micro-batch's memory.
struct EvaluationMemory {
  /// [rows, hidden]: the residual stream before and after a layer; may be one buffer.
  std::array<Values, 2> stream;
  Block::Saved block{};  ///< of the current layer; its input is one of the two
  Norm::Saved ln_f{};
  Values normed;  ///< [rows, hidden], ln_f's output
  Values logits;  ///< [logits_rows, vocab], rows logits_row_elems() apart
  std::int64_t logits_rows = 0;
  double* loss = nullptr;  ///< next to it, the targets that count
  /// [tensor, parts of a row]: one row of logits, where several ranks have or need it.
  float* row = nullptr;
  std::int64_t row_part_elems = 0;
  std::size_t bytes = 0;  ///< bytes of everything kept between its kernels
};

/// What one micro-batch keeps in one stage from its forward to its backward pass.
struct StageActivations {
  std::int32_t* inputs = nullptr;      ///< set if the stage embeds
  std::int32_t* targets = nullptr;     ///< set if it predicts
  std::int32_t* first_keys = nullptr;  ///< set if sequences are packed
  std::vector<Block::Saved> blocks;  ///< blocks[l].ln_1.x is the residual stream before its layer l
  std::vector<Block::Deferred> deferred;  ///< by layer, if backward passes are divided
  /// layers + 1 times [rows, hidden]. Null where the memory is not the decoder's: with
  /// Boundaries::host all but the last; in a pipeline the first and the last, if neighbours have
  /// them.
  std::vector<Values> residual;
  Norm::Saved ln_f{};
  Values normed;  ///< [rows, hidden], ln_f's output
  /// Bytes that come into use with the embedding, with each layer, and with the head.
  std::vector<std::size_t> part_bytes;
};

/// A decoder's memory on one rank; for Purpose::inference, only what an evaluation needs.
struct DecoderActivations {
  /// By slot, then by the rank's stage. The stages of a slot share its memory.
  std::vector<std::vector<StageActivations>> slots;
  /// By layer: whether its activations are recomputed, in memory that all such layers share.
  std::vector<bool> recomputed;
  std::size_t shared_bytes = 0;  ///< shared by these layers
  /// [logits_rows, vocab], rows logits_row_elems() apart, then their gradient. In a pipeline they
  /// live only from the beginning of a backward pass, for one micro-batch at a time.
  Values logits;
  std::int64_t logits_rows = 0;
  std::size_t logits_bytes = 0;
  /// Bytes of the logits that attention's backward borrows, if it can use more than its own
  /// workspace. The logits are dead after the head's backward pass. 0: nothing is lent.
  std::size_t lent_bytes = 0;

  // Reused memory.
  double* loss = nullptr;  ///< set if the rank predicts; next to it, the targets that count
  Values stream;           ///< [rows, hidden], gradient of the residual stream
  Values scratch;          ///< Block::scratch_elems
  Values whole;            ///< [rows, hidden], idle in layers' forward; with sequence parallelism
  float* statistics = nullptr;  ///< CrossEntropy::statistics_elems
  /// [2, seq, rotated values / 2], the tables of rotary positions; null without them.
  float* rotary = nullptr;
  /// Tokens of an evaluation; in training, those of a micro-batch.
  std::int32_t* inputs = nullptr;
  std::int32_t* targets = nullptr;
  std::int32_t* first_keys = nullptr;

  EvaluationMemory evaluation;
};

/// The rows of logits that an evaluation holds at a time.
inline constexpr std::int64_t kEvaluatedRows = 64;

/// `kept` gives memory that lives from forward to backward, `passing` the rest. Values have the
/// dtype `compute`; tokens, statistics, the loss and attention's tiles have their own.
[[nodiscard]] DecoderActivations cut_activations(const ActivationSizes& sizes, Cutter& kept,
                                                 Cutter& passing);

}  // namespace tessera::nn

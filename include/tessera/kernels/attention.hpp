#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/dropout.hpp"

namespace tessera::kernels {

/// Sizes of an attention, its window and its scale. hidden = heads * head_size, and packed =
/// (heads + 2 * kv_heads) * head_size: 3 * hidden if there are as many key heads as query heads.
struct AttentionShape {
  std::int64_t batch;      ///< samples
  std::int64_t seq;        ///< tokens of a sample
  std::int64_t heads;      ///< query heads that are computed here
  std::int64_t head_size;  ///< at most 256 on CUDA
  /// Heads of keys and values, a divisor of `heads`; 0: as many as `heads`. Query head h uses key
  /// head h / (heads / kv_heads).
  std::int64_t kv_heads = 0;
  std::int64_t window = 0;  ///< query t sees only keys s > t - window; 0: all up to t
  float scale = 0.0F;       ///< of the scores; 0: 1 / sqrt(head_size)
};

/// Arguments of attention_forward. qkv and y have one dtype: fp32, bf16 or fp16.
struct AttentionForward {
  ConstValues qkv;       ///< [batch, seq, packed]: q, k, v side by side, heads within each
  Values y;              ///< [batch, seq, hidden], overwritten
  float* log_sum_exp;    ///< [batch, heads, seq], overwritten: kept for backward
  float* workspace;      ///< [attention_workspace_elems], scratch memory; layers may share it
  AttentionShape shape;  ///< the sizes
  float dropout = 0.0F;  ///< chance that an attention probability is dropped, in [0, 1); 0: none
  DropoutKey key = {};   ///< the key of the random words of dropout
  std::int64_t first_head = 0;  ///< for dropout: the index of the first of these heads in the layer
  /// [batch, seq] on the device: query t sees no key before first_key[t]; null: it sees all up to
  /// t. In a sample first_key[t] <= t and does not decrease: it is where the document of token t
  /// starts.
  const std::int32_t* first_key = nullptr;
};

/// Computes causal softmax attention: query t sees the keys max(first_key[t], t - window + 1) .. t.
/// It never holds the seq x seq matrices of all heads, and skips tiles of keys that no query of a
/// tile sees.
///
/// A first_key[t] below 0 counts as 0 and one above t as t, so that no value reads out of bounds.
/// If first_key decreases within a sample, some of the keys that queries see are unspecified.
///
/// Dropout drops attention probabilities and scales the others. Query t of head h, counted with
/// first_head, drops key s by the random word(sample, (h seq + t) round_up(seq, 4) + s) of `key`:
/// see `dropout`.
///
/// Bits:   the order of sums is a backend's own. It depends on the shape and first_key, and the
///         results of a sample on that sample only. A CUDA module with cuDNN uses it for 16-bit
///         attention of common head sizes that has no dropout, no first_key and no window shorter
///         than seq, as many key heads as query heads and the default scale. The order of sums
///         then depends on cuDNN's version, the kind of device, the number of samples and,
///         backward, the size of the workspace. It is the same in every run unless
///         WorldOptions::nondeterministic_attention is set.
///
///         In 16 bits CUDA rounds probabilities and the gradients of scores to 16 bits if heads
///         have at most 128 elements.
/// Errors: ContractError for a negative size, window or first_head, heads of 0 elements, kv_heads
///         that do not divide heads, a scale that is negative or not finite, a dropout outside
///         [0, 1), a null or fp64 array, dtypes that differ; on CUDA for a head of more than 256
///         elements.
void attention_forward(const AttentionForward& args, Stream stream);

/// Arguments of attention_backward. All arrays but log_sum_exp and the workspace have one dtype.
/// Shape, dropout, key and first_key are those of forward.
struct AttentionBackward {
  ConstValues qkv;           ///< [batch, seq, packed], as in forward
  ConstValues y;             ///< [batch, seq, hidden], from forward
  const float* log_sum_exp;  ///< [batch, heads, seq], from forward
  ConstValues dy;            ///< [batch, seq, hidden]
  Values dqkv;               ///< [batch, seq, packed], overwritten
  float* workspace;          ///< [workspace_elems], scratch memory
  AttentionShape shape;      ///< the sizes, as in forward
  float dropout = 0.0F;      ///< as in forward
  DropoutKey key = {};       ///< as in forward
  /// The number of fp32 elements of `workspace`; 0: attention_workspace_elems. A larger workspace,
  /// up to attention_backward_workspace_elems, makes cuDNN's backward faster.
  std::int64_t workspace_elems = 0;
  std::int64_t first_head = 0;              ///< as in forward
  const std::int32_t* first_key = nullptr;  ///< as in forward
};

/// Computes the gradient of attention_forward. The gradient of a key head is the sum over its query
/// heads, in order, in fp32. On a CPU one thread computes all query heads of a key head: more than
/// batch * kv_heads threads gain nothing. Bits and errors are those of attention_forward; also
/// throws ContractError if the workspace is smaller than attention_workspace_elems.
void attention_backward(const AttentionBackward& args, Stream stream);

/// Returns the number of fp32 elements of workspace that both directions need on this stream, for
/// activations of `dtype`. On a CPU each thread with a head to work on needs a few rows of tiles,
/// never seq^2 * heads, and in 16 bits one head of every tensor in fp32. CUDA needs one element for
/// each query row of each head, or, if it is more, what cuDNN would need: at most 128 MiB, or for
/// more than 8,064 tokens one head's, at most 2 GiB. The result is the same in a build without
/// cuDNN. Throws ContractError for a negative size or fp64.
[[nodiscard]] std::int64_t attention_workspace_elems(const AttentionShape& shape, DType dtype,
                                                     Stream stream);

/// Returns the number of fp32 elements of workspace beyond which attention_backward gains nothing:
/// attention_workspace_elems, or, on CUDA, what cuDNN would need for all heads at a time (2 seq^2
/// bytes a head, with seq rounded up to a multiple of 128), also in a build without cuDNN. A caller
/// lends it from idle memory. Throws ContractError for a negative size or fp64.
[[nodiscard]] std::int64_t attention_backward_workspace_elems(const AttentionShape& shape,
                                                              DType dtype, Stream stream);

}  // namespace tessera::kernels

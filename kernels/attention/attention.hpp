#pragma once

#include <algorithm>
#include <cmath>

#include "device/stream_state.hpp"
#include "tessera/kernels/attention.hpp"

namespace tessera::kernels {

// On a CPU each thread processes one tile of query rows of one head at a time, in its own part of
// the workspace; on CUDA a block does, 64 x 64 scores at a time. For 16-bit dtypes CUDA multiplies
// on tensor cores (attention_cores.hpp). A CUDA module with cuDNN uses it for whatever suits_cudnn
// accepts (cudnn_rule.hpp), without dropout and first_key, if arrays start at multiples of 16
// bytes. Both round probabilities and their gradients to the dtype before they multiply them.

/// Heads of keys and values.
[[nodiscard]] constexpr std::int64_t kv_heads_of(const AttentionShape& shape) noexcept {
  return shape.kv_heads == 0 ? shape.heads : shape.kv_heads;
}
/// Query heads that share a key head.
[[nodiscard]] constexpr std::int64_t group_of(const AttentionShape& shape) noexcept {
  return shape.kv_heads == 0 ? 1 : shape.heads / shape.kv_heads;
}
/// Elements of a row of qkv.
[[nodiscard]] constexpr std::int64_t packed_of(const AttentionShape& shape) noexcept {
  return (shape.heads + 2 * kv_heads_of(shape)) * shape.head_size;
}
/// The window in 1 .. seq: with seq it hides nothing.
[[nodiscard]] constexpr std::int64_t window_of(const AttentionShape& shape) noexcept {
  return shape.window == 0 ? shape.seq : std::min(shape.window, shape.seq);
}
[[nodiscard]] inline double scale_of(const AttentionShape& shape) noexcept {
  return shape.scale == 0.0F ? 1.0 / std::sqrt(static_cast<double>(shape.head_size))
                             : static_cast<double>(shape.scale);
}
/// Whether each query head has keys of its own and sees all that come before.
[[nodiscard]] constexpr bool is_plain(const AttentionShape& shape) noexcept {
  return group_of(shape) == 1 && window_of(shape) == shape.seq;
}

/// The keys that the queries of one sample see: query t sees those from first(t) to t. first() does
/// not decrease, unless a caller's first_key does: nothing may read or write out of bounds then.
struct SeenKeys {
  const std::int32_t* first_key;  ///< of the sample; may be null
  std::int64_t window;            ///< from window_of

  [[nodiscard]] constexpr std::int64_t first(std::int64_t t) const noexcept {
    const std::int64_t in_window = t - window < 0 ? 0 : t - window + 1;
    if (first_key == nullptr) { return in_window; }
    const std::int64_t in_document = first_key[t] < t ? first_key[t] : t;
    return in_document < in_window ? in_window : in_document;
  }
};
template <class Args>
[[nodiscard]] constexpr SeenKeys seen_keys(const Args& args, std::int64_t sample) noexcept {
  return {args.first_key == nullptr ? nullptr : args.first_key + sample * args.shape.seq,
          window_of(args.shape)};
}

using AttentionForwardKernel = void(const AttentionForward& args, Stream stream);
using AttentionBackwardKernel = void(const AttentionBackward& args, Stream stream);

/// attention_workspace_elems, or attention_backward_workspace_elems, of a stream that computes on
/// `on`.
using AttentionWorkspace = std::int64_t(const AttentionShape& shape, DType dtype,
                                        const device::StreamKernels& on);

namespace reference {
AttentionForwardKernel attention_forward;
AttentionBackwardKernel attention_backward;
}  // namespace reference
namespace cpu {
AttentionForwardKernel attention_forward;
AttentionBackwardKernel attention_backward;
AttentionWorkspace attention_workspace_elems;
}  // namespace cpu
namespace cuda {
AttentionForwardKernel attention_forward;
AttentionBackwardKernel attention_backward;
AttentionWorkspace attention_workspace_elems;
AttentionWorkspace attention_backward_workspace_elems;
}  // namespace cuda

}  // namespace tessera::kernels

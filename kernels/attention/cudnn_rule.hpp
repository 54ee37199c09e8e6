#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cuda {

// cuDNN's deterministic backward holds the gradient of the probabilities of the heads in a call, in
// 16 bits, in tiles of 128. Each call therefore takes as many heads as fit into the workspace: the
// size that plans count, without the module, or more if the caller lends more. cuDNN does not take
// a head that is too long even alone. The other backward adds the gradients of queries in fp32 in
// any order, and holds only these.

/// The most memory that cuDNN may work in, including everything else it needs, unless the stream
/// sets another limit. One head alone may take more, and does for sequences of more than 8,064
/// tokens. With 32,640 tokens, whose activations are many times as large, it takes almost all of
/// kMostCudnnHeadBytes.
inline constexpr std::size_t kMostCudnnBytes = device::StreamKernels{}.attention_bytes;
inline constexpr std::size_t kMostCudnnHeadBytes = std::size_t{2} << 30U;
inline constexpr std::size_t kCudnnSlackBytes = std::size_t{1} << 20U;

/// Workspace of one head: the gradient of its probabilities, and a sum for each row.
[[nodiscard]] constexpr std::size_t cudnn_head_bytes(std::int64_t seq) noexcept {
  const auto rows = static_cast<std::size_t>(round_up(seq, std::int64_t{128}));
  return rows * rows * 2 + rows * sizeof(float);
}

/// The same where the order of sums may be any.
[[nodiscard]] constexpr std::size_t cudnn_head_bytes_in_any_order(std::int64_t seq,
                                                                  std::int64_t head_size) noexcept {
  const auto rows = static_cast<std::size_t>(round_up(seq, std::int64_t{128}));
  return rows * static_cast<std::size_t>(head_size + 1) * sizeof(float);
}
[[nodiscard]] constexpr std::size_t cudnn_head_bytes(const AttentionShape& shape,
                                                     device::SumOrder order) noexcept {
  return order == device::SumOrder::fixed
             ? cudnn_head_bytes(shape.seq)
             : cudnn_head_bytes_in_any_order(shape.seq, shape.head_size);
}

/// The number of heads that fit into `bytes` of workspace at a time, at most all of them.
[[nodiscard]] constexpr std::int64_t cudnn_heads_in(
    const AttentionShape& shape, std::size_t bytes,
    device::SumOrder order = device::SumOrder::fixed) noexcept {
  const std::size_t room = bytes - std::min(bytes, kCudnnSlackBytes);
  return std::min(shape.batch * shape.heads,
                  static_cast<std::int64_t>(room / cudnn_head_bytes(shape, order)));
}

/// Number of heads at a time in the workspace that a plan counts; 0 if not even one fits.
[[nodiscard]] constexpr std::int64_t cudnn_heads(const AttentionShape& shape,
                                                 device::SumOrder order = device::SumOrder::fixed,
                                                 std::size_t most = kMostCudnnBytes) noexcept {
  const std::size_t alone = cudnn_head_bytes(shape, order) + kCudnnSlackBytes;
  const std::size_t bytes = alone <= kMostCudnnHeadBytes ? std::max(most, alone) : most;
  return cudnn_heads_in(shape, bytes, order);
}

/// Whether cuDNN computes attention of this shape and dtype, without dropout or first_key, where
/// the module has it: bf16 or fp16; as many key heads as query heads, no shorter window and the
/// default scale; head sizes of up to 128 that are multiples of 8; two rows or more; at least one
/// head at a time, or all of them if the log_sum_exp of some heads would not start at a multiple of
/// 16 bytes.
[[nodiscard]] constexpr bool suits_cudnn(const AttentionShape& shape, DType dtype,
                                         std::size_t most = kMostCudnnBytes) noexcept {
  return size_of(dtype) == 2 && is_plain(shape) && shape.scale == 0.0F &&
         shape.head_size % 8 == 0 && shape.head_size >= 8 && shape.head_size <= 128 &&
         shape.seq >= 2 && cudnn_heads(shape, device::SumOrder::fixed, most) >= 1 &&
         (shape.seq % 4 == 0 ||
          cudnn_heads(shape, device::SumOrder::fixed, most) == shape.batch * shape.heads);
}

/// The order in which cuDNN's backward adds if the caller asks for `asked`. Which shapes suit cuDNN
/// does not depend on the order: short rows whose heads all fit at once only in the fixed order
/// keep that order.
[[nodiscard]] constexpr device::SumOrder cudnn_order(const AttentionShape& shape,
                                                     device::SumOrder asked,
                                                     std::size_t most = kMostCudnnBytes) noexcept {
  const bool fits =
      shape.seq % 4 == 0 || cudnn_heads(shape, asked, most) == shape.batch * shape.heads;
  return fits ? asked : device::SumOrder::fixed;
}

/// The part of `workspace` that cuDNN gets; 0 if the shape does not suit it.
[[nodiscard]] constexpr std::size_t cudnn_workspace_bytes(
    const AttentionShape& shape, DType dtype, device::SumOrder asked = device::SumOrder::fixed,
    std::size_t most = kMostCudnnBytes) noexcept {
  if (!suits_cudnn(shape, dtype, most)) { return 0; }
  const device::SumOrder order = cudnn_order(shape, asked, most);
  return static_cast<std::size_t>(cudnn_heads(shape, order, most)) *
             cudnn_head_bytes(shape, order) +
         kCudnnSlackBytes;
}

/// The most that cuDNN's backward can use, with all heads at a time; 0 if the shape does not suit
/// it.
[[nodiscard]] constexpr std::size_t cudnn_whole_workspace_bytes(
    const AttentionShape& shape, DType dtype, device::SumOrder asked = device::SumOrder::fixed,
    std::size_t most = kMostCudnnBytes) noexcept {
  if (!suits_cudnn(shape, dtype, most)) { return 0; }
  return static_cast<std::size_t>(shape.batch * shape.heads) *
             cudnn_head_bytes(shape, cudnn_order(shape, asked, most)) +
         kCudnnSlackBytes;
}

/// Whether this version of cuDNN (91801 for 9.18.1) has its deterministic backward on devices with
/// this major number of the compute capability.
[[nodiscard]] constexpr bool has_deterministic_cudnn(std::size_t version, int major) noexcept {
  return major != 10 || version >= 91801;
}

}  // namespace tessera::kernels::cuda

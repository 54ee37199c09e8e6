#pragma once

#include "kernels/support/host_device.hpp"
#include "tessera/kernels/embedding.hpp"

namespace tessera::kernels {

using EmbeddingForwardKernel = void(const EmbeddingForward& args, Stream stream);
using EmbeddingBackwardKernel = void(const EmbeddingBackward& args, Stream stream);

/// The rows of a table of tokens.
struct TokenRows {
  std::int64_t first_token;
  std::int64_t tokens;  ///< negative: all tokens

  /// The table's row of `token`, or -1 if the table does not have it.
  [[nodiscard]] TESSERA_HOST_DEVICE std::int64_t row_of(std::int64_t token) const {
    const std::int64_t row = token - first_token;
    return tokens < 0 || (row >= 0 && row < tokens) ? row : -1;
  }
};

namespace reference {
EmbeddingForwardKernel embedding_forward;
EmbeddingBackwardKernel embedding_backward;
}  // namespace reference
namespace cpu {
EmbeddingForwardKernel embedding_forward;
EmbeddingBackwardKernel embedding_backward;
}  // namespace cpu
namespace cuda {
EmbeddingForwardKernel embedding_forward;
EmbeddingBackwardKernel embedding_backward;
}  // namespace cuda

}  // namespace tessera::kernels

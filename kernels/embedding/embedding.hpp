#pragma once

#include "tessera/kernels/embedding.hpp"

namespace tessera::kernels {

using EmbeddingForwardKernel = void(const EmbeddingForward& args, Stream stream);
using EmbeddingBackwardKernel = void(const EmbeddingBackward& args, Stream stream);

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

#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated_cuda {

/// Enqueues `work` for a library's double. It may touch the memory of every device and may block
/// until other streams' work arrives. In a capture it becomes part of the graph and runs at every
/// launch. `name` is a literal such as "cublasLtMatmul".
[[nodiscard]] cudaError_t enqueue_library_call(cudaStream_t stream, const char* name,
                                               std::function<void()> work);

/// The device of a stream; -1 if the handle is invalid.
[[nodiscard]] int stream_device(cudaStream_t stream);

}  // namespace emulated_cuda

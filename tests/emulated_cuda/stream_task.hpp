#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated_cuda {

/// For doubles of libraries: enqueues `work`, which may touch the memory of every device and may
/// block until other streams' work has come; where the stream is captured, it becomes part of the
/// graph, and runs at every launch. `name` is a literal: "cublasLtMatmul".
[[nodiscard]] cudaError_t enqueue_library_call(cudaStream_t stream, const char* name,
                                               std::function<void()> work);

/// The device of a stream; -1 if it is none.
[[nodiscard]] int stream_device(cudaStream_t stream);

}  // namespace emulated_cuda

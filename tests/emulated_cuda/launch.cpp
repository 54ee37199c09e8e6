#include "emulated_cuda/launch.hpp"

#include <utility>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/dynamic_shared.hpp"
#include "emulated_cuda/grid.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/stream.hpp"

namespace emulated_cuda {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocksInYAndZ = 65535;

bool is_legal(const dim3& grid, const dim3& block) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  return threads > 0 && threads <= kMostThreads && block.z <= 64 && blocks > 0 &&
         grid.x <= 0x7FFFFFFFU && grid.y <= kMostBlocksInYAndZ && grid.z <= kMostBlocksInYAndZ;
}

cudaError_t enqueue_grid(const cudaLaunchConfig_t& config, const void* kernel,
                         std::function<void()> body) {
  if (!is_legal(config.gridDim, config.blockDim)) { return cudaErrorInvalidConfiguration; }
  if (!may_have_shared(kernel, current_device(), config.dynamicSmemBytes)) {
    return cudaErrorInvalidValue;
  }
  if (config.numAttrs != 0) { misuse("attributes of launches are not emulated"); }
  if (!is_stream(config.stream) || config.stream->device() != current_device()) {
    return cudaErrorInvalidResourceHandle;
  }
  Task task;
  task.name = "a kernel";
  task.kernel = kernel;
  task.device = config.stream->device();
  task.work = [grid = config.gridDim, block = config.blockDim, shared = config.dynamicSmemBytes,
               body = std::move(body), kernel,
               draw = config.stream->draw()] { run_grid(grid, block, shared, body, kernel, draw); };
  return enqueue(config.stream, std::move(task), Graph::Kind::kernel);
}

}  // namespace

cudaError_t launch_grid(const cudaLaunchConfig_t& config, const void* kernel,
                        std::function<void()> body) {
  return api("cudaLaunchKernelEx", [&] { return enqueue_grid(config, kernel, std::move(body)); });
}

}  // namespace emulated_cuda

#pragma once

#include <functional>
#include <utility>

/// Shards libtorch modules: see `shard`.
namespace tessera::torch {

/// A guard during whose life libtorch makes this thread's tensors on the meta device: they have
/// shapes and no memory. Operators that fill them, such as the initial values of layers, do nothing
/// and draw no random numbers. A tensor that names the CPU (torch::kCPU) is real; torch::tensor
/// makes such tensors from given numbers. Guards nest.
class MetaGuard {
 public:
  /// Begins to make tensors on the meta device.
  MetaGuard();
  /// Ends that, unless an outer guard lives.
  ~MetaGuard();
  MetaGuard(const MetaGuard&) = delete;
  MetaGuard& operator=(const MetaGuard&) = delete;
};

/// Returns the module that `build` makes, with its parameters on the meta device, so that no rank
/// ever holds the whole model. `shard` gives the parameters their values (ShardOptions::initial)
/// and makes the buffers of libtorch's own layers. It refuses other buffers on the meta device and
/// names them: make those with torch::kCPU, or after this call.
///
///     auto net = tessera::torch::on_meta([] { return std::make_shared<Net>(); });
template <class Build>
[[nodiscard]] auto on_meta(Build&& build) {
  const MetaGuard guard;
  return std::forward<Build>(build)();
}

}  // namespace tessera::torch

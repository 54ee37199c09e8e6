#pragma once

#include <functional>
#include <utility>

namespace tessera::torch {

/// While it lives, tensors that libtorch makes on this thread are on the meta device: they have
/// shapes and no memory. What fills them, such as the initial values of layers, does nothing, and
/// draws no random numbers. A tensor that is made on the CPU by name (torch::kCPU), as
/// torch::tensor makes those of given numbers, is real. Guards nest.
class MetaGuard {
 public:
  MetaGuard();
  ~MetaGuard();
  MetaGuard(const MetaGuard&) = delete;
  MetaGuard& operator=(const MetaGuard&) = delete;
};

/// Returns what `build` returns, a module whose parameters are on the meta device: no rank ever
/// holds the whole model. `shard` gives the parameters their values (ShardOptions::initial). It
/// also makes the buffers of libtorch's own layers, and refuses others that are on meta, by name:
/// make them on the CPU by name, or after it.
///
///   auto net = tessera::torch::on_meta([] { return std::make_shared<Net>(); });
template <class Build>
[[nodiscard]] auto on_meta(Build&& build) {
  const MetaGuard guard;
  return std::forward<Build>(build)();
}

}  // namespace tessera::torch

#pragma once

#include <functional>
#include <utility>

namespace tessera::torch {

/// While it lives, tensors that libtorch makes on this thread are on the meta device: they have
/// shapes and no memory. What fills them, such as the initial values of layers, does nothing. Guards
/// nest.
class MetaGuard {
 public:
  MetaGuard();
  ~MetaGuard();
  MetaGuard(const MetaGuard&) = delete;
  MetaGuard& operator=(const MetaGuard&) = delete;
};

/// Returns what `build` returns, a module whose parameters are on the meta device: no rank ever
/// holds the whole model. `shard` gives the parameters their values (ShardOptions::initial, or
/// ShardedModule::load). Buffers must be made on a real device after it: `shard` makes those of
/// libtorch's own layers, and refuses others that are on meta, by name.
///
///   auto net = tessera::torch::on_meta([] { return std::make_shared<Net>(); });
template <class Build>
[[nodiscard]] auto on_meta(Build&& build) {
  const MetaGuard guard;
  return std::forward<Build>(build)();
}

}  // namespace tessera::torch

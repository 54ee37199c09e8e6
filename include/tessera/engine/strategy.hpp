#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/world/mesh_shape.hpp"

namespace tessera {

/// What each rank keeps. S is the mesh's `shard` dimension: the number of ranks N, if no mesh is
/// given.
///
///            parameters     gradients      optimizer state
///   dp       rank 0         rank 0         rank 0          others borrow during the step
///   ddp      full           full           full
///   zero1    full           full           1/S
///   zero2    full           1/S + slots    1/S
///   zero3    1/S + slots    1/S + slots    1/S             (also called fsdp)
///   hybrid   1/S + slots    1/S + slots    1/S             zero3 on a mesh of N/S copies
enum class Strategy : std::uint8_t { dp, ddp, zero1, zero2, zero3, hybrid };

[[nodiscard]] std::string_view to_string(Strategy strategy) noexcept;
/// ConfigError that lists the known names. "fsdp" is zero3.
[[nodiscard]] Strategy parse_strategy(std::string_view name);
/// In the order of the table above.
[[nodiscard]] const std::vector<Strategy>& all_strategies();

/// When gradients of several micro-batches are reduced.
enum class AccumulateMode : std::uint8_t {
  automatic,  ///< every for zero2, zero3 and hybrid, deferred for the others
  every,      ///< each micro-batch: no full gradients are kept, more traffic
  deferred,   ///< once, with the last micro-batch: full local gradients are kept
};

[[nodiscard]] std::string_view to_string(AccumulateMode mode) noexcept;
[[nodiscard]] AccumulateMode parse_accumulate_mode(std::string_view name);

/// When a block gives its gathered parameters back (zero3, hybrid).
enum class Reshard : std::uint8_t {
  after_forward,   ///< after each use, into a ring of slots: least memory, gathered twice
  after_backward,  ///< after the last use in a micro-batch: a slot of its own, gathered once
};

[[nodiscard]] std::string_view to_string(Reshard reshard) noexcept;
/// "after-forward" or "after-backward"; ConfigError that lists them.
[[nodiscard]] Reshard parse_reshard(std::string_view name);

/// What lies in the rank's host pool instead of the device's memory.
enum class Offload : std::uint8_t {
  none,
  optimizer,  ///< master weights and the optimizer's state; the update runs on the host
};

[[nodiscard]] std::string_view to_string(Offload offload) noexcept;

/// Who holds a part of the training state between steps. `sharded`: the ranks along the mesh's
/// dimension `shard`, each a part of it.
enum class Holding : std::uint8_t { rank0, replicated, sharded };

struct StrategyTraits {
  Holding parameters;
  Holding gradients;
  Holding optimizer;
};
[[nodiscard]] StrategyTraits traits_of(Strategy strategy) noexcept;
/// The mesh of a model that is given none. `shard_group` is hybrid's S, a divisor of `ranks`;
/// others do not read it.
///
///   dp, ddp                {{"replicate", N}}
///   zero1, zero2, zero3    {{"shard", N}}
///   hybrid                 {{"replicate", N / S}, {"shard", S}}
[[nodiscard]] MeshShape mesh_of(Strategy strategy, int ranks, int shard_group);
/// What `automatic` means for `strategy`.
[[nodiscard]] AccumulateMode resolve(AccumulateMode mode, Strategy strategy) noexcept;

}  // namespace tessera

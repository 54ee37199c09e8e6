#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/world/mesh_shape.hpp"

namespace tessera {

/// The parts of the training state that each rank keeps between uses. S is the size of the mesh's
/// dimension `shard`: the number of ranks N if no mesh is given. "slots" is memory for units that
/// are gathered or reduced at the moment.
///
///              parameters     gradients      optimizer state
///     dp       rank 0         rank 0         rank 0          others have copies in the step
///     ddp      full           full           full
///     zero1    full           full           1/S
///     zero2    full           1/S + slots    1/S
///     zero3    1/S + slots    1/S + slots    1/S             (also called fsdp)
///     hybrid   1/S + slots    1/S + slots    1/S             zero3 on a mesh of N/S copies
enum class Strategy : std::uint8_t {
  dp,      ///< Rank 0 keeps everything and updates; other ranks get copies in each step.
  ddp,     ///< Every rank keeps everything.
  zero1,   ///< The optimizer state is sharded.
  zero2,   ///< Gradients and optimizer state are sharded.
  zero3,   ///< Parameters, gradients and optimizer state are sharded; also called fsdp.
  hybrid,  ///< zero3 within groups of ranks, each of which keeps a copy.
};

/// Returns the name of the enumerator: "dp", "ddp", ...
[[nodiscard]] std::string_view to_string(Strategy strategy) noexcept;
/// The inverse of to_string; "fsdp" is zero3. Throws ConfigError that lists the names if `name` is
/// not one.
[[nodiscard]] Strategy parse_strategy(std::string_view name);
/// Returns every strategy, in the order of the enumerators.
[[nodiscard]] const std::vector<Strategy>& all_strategies();

/// When the gradients of several micro-batches are reduced.
enum class AccumulateMode : std::uint8_t {
  automatic,  ///< `every` for zero2, zero3 and hybrid, and `deferred` for the others and on meshes
              ///< with `pipe`.
  every,      ///< In each micro-batch. Sends more; zero2 and above keep no full gradients.
  deferred,   ///< Once, with the last micro-batch: a rank keeps full gradients.
};

/// Returns "automatic", "every" or "deferred".
[[nodiscard]] std::string_view to_string(AccumulateMode mode) noexcept;
/// The inverse of to_string. Throws ConfigError that lists the names if `name` is not one.
[[nodiscard]] AccumulateMode parse_accumulate_mode(std::string_view name);

/// When a block gives its gathered parameters back (zero3, hybrid).
enum class Reshard : std::uint8_t {
  after_forward,   ///< After each use. Blocks share a ring of slots. This takes the least memory,
                   ///< and gathers a block twice in a micro-batch.
  after_backward,  ///< After its last use in a micro-batch. Each block has a slot of its
                   ///< own and is gathered once.
};

/// Returns "after-forward" or "after-backward".
[[nodiscard]] std::string_view to_string(Reshard reshard) noexcept;
/// The inverse of to_string. Throws ConfigError that lists the names if `name` is not one.
[[nodiscard]] Reshard parse_reshard(std::string_view name);

/// The state that is kept in the rank's host pool instead of device memory.
enum class Offload : std::uint8_t {
  none,       ///< Everything is on the device.
  optimizer,  ///< Master weights and the optimizer's state are on the host, which runs the update.
  state,      ///< Master weights and the optimizer's state are on the host between updates. The
              ///< device runs the update and copies them piece by piece.
};

/// Returns "none", "optimizer" or "state".
[[nodiscard]] std::string_view to_string(Offload offload) noexcept;

/// The ranks that hold a part of the training state between steps.
enum class Holding : std::uint8_t {
  rank0,       ///< Rank 0 holds all of it.
  replicated,  ///< Every rank holds all of it.
  sharded,     ///< Each rank along the mesh's dimension `shard` holds a shard of it.
};

/// The ranks that hold each part of the training state under one strategy.
struct StrategyTraits {
  Holding parameters;  ///< The ranks that hold the parameters.
  Holding gradients;   ///< The ranks that hold the gradients.
  Holding optimizer;   ///< The ranks that hold the optimizer state.
};
/// Returns the row of `strategy` in the table of Strategy.
[[nodiscard]] StrategyTraits traits_of(Strategy strategy) noexcept;
/// Returns the mesh of a model that is given none. `shard_group` is hybrid's S, a divisor of
/// `ranks`; other strategies do not read it.
///
///     dp, ddp                {{"replicate", N}}
///     zero1, zero2, zero3    {{"shard", N}}
///     hybrid                 {{"replicate", N / S}, {"shard", S}}
[[nodiscard]] MeshShape mesh_of(Strategy strategy, int ranks, int shard_group);
/// Returns `mode`, with `automatic` resolved for `strategy` on a mesh without `pipe`.
[[nodiscard]] AccumulateMode resolve(AccumulateMode mode, Strategy strategy) noexcept;

}  // namespace tessera

#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/plan/sharding.hpp"
#include "engine/unit/live_units.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/shard/parameter_info.hpp"

namespace tessera::engine {

/// Takes one parameter's values.
using StateSink = std::function<void(const ParameterInfo&, std::span<const float>)>;
/// Takes those of a parameter from element `first` on.
using PieceSink =
    std::function<void(const ParameterInfo&, std::int64_t first, std::span<const float>)>;

// Each gives back what it has taken also when the sink throws.

/// *Collective.* Between steps; under dp every rank has a copy of the parameters.
void export_parameters(World& world, LiveUnits& units, const Sharding& group,
                       const ModelOptions& options, const StateSink& sink);
/// *Collective.* The reduced gradients of a step, complete, times `factor`.
void export_gradients(World& world, LiveUnits& units, const Sharding& group,
                      const ModelOptions& options, float factor, const StateSink& sink);
/// What this rank's optimizer updates, in fp32.
void export_masters(World& world, LiveUnits& units, const PieceSink& sink);

}  // namespace tessera::engine

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
/// Takes a parameter's values from element `first` on.
using PieceSink =
    std::function<void(const ParameterInfo&, std::int64_t first, std::span<const float>)>;

// Each function restores what it borrowed, also when the sink throws.

/// *Collective.* Between steps. Under dp every rank has a copy of the parameters.
void export_parameters(World& world, LiveUnits& units, const Sharding& group,
                       const ModelOptions& options, const StateSink& sink);
/// *Collective.* Exports a step's reduced gradients, complete and multiplied by `factor`.
void export_gradients(World& world, LiveUnits& units, const Sharding& group,
                      const ModelOptions& options, float factor, const StateSink& sink);
/// Exports, in fp32, the elements that this rank's optimizer updates.
void export_masters(World& world, LiveUnits& units, const PieceSink& sink);

}  // namespace tessera::engine

#pragma once

#include <string>
#include <vector>

#include "tessera/engine/model_options.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/shard/layout.hpp"

// Rules of options that need no unit, each with its one text. A text quotes the name of an option
// as the user writes it, in backticks, so that the command can name its flag instead. `validate`
// (model_options.hpp) has the rules of ModelOptions and of an optimizer; the rest is here.
namespace tessera::engine {

/// Whether the ranks shard parameters, and so gather a unit before each use.
[[nodiscard]] inline bool gathers(Strategy strategy) noexcept {
  return traits_of(strategy).parameters == Holding::sharded;
}

/// Throws ConfigError if a parameter's dtype is not supported, or if an option of `unit` has no
/// effect under `options`. `name` is the unit's.
void check_unit(const std::string& name, const std::vector<ParameterSpec>& specs,
                const UnitOptions& unit, const ModelOptions& options);

/// Throws ConfigError if ModelOptions::mesh does not fit `ranks` ranks, or the strategy cannot use
/// it. An empty mesh always passes.
void check_mesh(const ModelOptions& options, int ranks);

/// The number of ranks on each machine, given every rank's machine in rank order; 0 if the machines
/// hold different numbers of ranks, or ranks that are not contiguous.
[[nodiscard]] int ranks_of_each_machine(const std::vector<std::string>& machines);

/// The size of hybrid's shard groups where `shard_group` is 0: the ranks of one machine. Throws
/// ConfigError if `ranks_of_each_machine` is 0.
[[nodiscard]] int shard_group_of(const std::vector<std::string>& machines);

}  // namespace tessera::engine

#pragma once

#include <string>
#include <vector>

#include "tessera/engine/model_options.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/shard/layout.hpp"

// The rules of options that no unit is needed for, each with its one text. A text quotes the name
// of an option as the user writes it, in backticks, so that the command can name its flag instead.
// `validate` (model_options.hpp) holds those of ModelOptions and of an optimizer; the rest is here.
namespace tessera::engine {

/// Whether the ranks shard parameters, and so gather a unit before each use.
[[nodiscard]] inline bool gathers(Strategy strategy) noexcept {
  return traits_of(strategy).parameters == Holding::sharded;
}

/// Throws ConfigError if a parameter's dtype is not supported, or if `unit` has no effect under
/// `options`. `name` is the unit's.
void check_unit(const std::string& name, const std::vector<ParameterSpec>& specs,
                const UnitOptions& unit, const ModelOptions& options);

/// Throws ConfigError if ModelOptions::mesh is no mesh of `ranks` ranks, or not one that the
/// strategy can use. An empty one is not looked at.
void check_mesh(const ModelOptions& options, int ranks);

/// The number of ranks on each machine, given the machine of every rank, in order of ranks; 0 if
/// the machines hold different numbers of ranks, or hold them in turn instead of side by side.
[[nodiscard]] int ranks_of_each_machine(const std::vector<std::string>& machines);

/// The size of hybrid's shard groups where `shard_group` is 0: the ranks of a machine. Throws
/// ConfigError where `ranks_of_each_machine` finds no such number.
[[nodiscard]] int shard_group_of(const std::vector<std::string>& machines);

}  // namespace tessera::engine

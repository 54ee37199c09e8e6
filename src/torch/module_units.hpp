#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tessera/torch/shard.hpp"

namespace tessera::torch {

/// The name of the unit of all parameters that are in no other unit.
inline constexpr const char* kRootUnit = "(root)";

/// A parameter of a module.
struct ModuleParameter {
  std::string name;                ///< within its unit
  std::vector<std::string> names;  ///< in the whole module; several if it is shared
  at::Tensor tensor;               ///< the module's own handle
};

/// A unit of a module: parameters that are gathered and released together.
struct ModuleUnit {
  std::string name;                        ///< name of its module, or kRootUnit
  std::optional<std::size_t> parent = {};  ///< the unit that contains it
  bool contains_units = false;             ///< whether it is the parent of a unit
  std::vector<ModuleParameter> parameters = {};
};

/// Divides the parameters of `module` into units, as `is_unit` says. The root unit, if there is
/// one, comes first; the others follow in the module's order. Throws ContractError for parameters
/// that ShardedModule rejects, and if `is_unit` was given and finds no unit.
[[nodiscard]] std::vector<ModuleUnit> units_of(const ::torch::nn::Module& module,
                                               const UnitPredicate& is_unit);

/// Returns the parameter's name in the whole module.
[[nodiscard]] std::string full_name(const std::string& unit, const std::string& parameter);

}  // namespace tessera::torch

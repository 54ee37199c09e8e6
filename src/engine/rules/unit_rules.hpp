#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/engine/model_options.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/shard/layout.hpp"

// Rules of options that depend on the declared units. They read plain data and change nothing.
namespace tessera::engine {

/// What the rules need to know of a declared unit. `layout` is borrowed.
struct DeclaredUnit {
  std::string_view name;
  const UnitLayout* layout = nullptr;
  UnitOptions options = {};
};

/// Returns `declared`, the padded elements of earlier units, plus those of `layout`. Throws
/// ConfigError naming the unit if the sum exceeds 2^50: below that no size in bytes can overflow.
[[nodiscard]] std::int64_t add_elems(std::int64_t declared, std::string_view unit,
                                     const UnitLayout& layout);

/// The padded elements of `layout` that the optimizer updates.
[[nodiscard]] std::int64_t updated_elems(const UnitLayout& layout) noexcept;

/// Throws ConfigError if an option has no effect on these units or does not work with them:
/// unzeroed gradients, `master_weights`, `persist_elems`, `offload` and `offload_keep`. Called when
/// all units are known, before anything is allocated.
void check_units(std::span<const DeclaredUnit> units, const ModelOptions& options);

/// Throws ConfigError if `rounding` or `offload` has no effect on these units with this optimizer.
void check_update(std::span<const DeclaredUnit> units, const ModelOptions& options,
                  const Optimizer& optimizer, const OptimizerOptions& update);

}  // namespace tessera::engine

#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/plan/unit_plan.hpp"
#include "engine/plan/use_order.hpp"
#include "engine/rules/unit_rules.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::engine {

/// The units of a model as they are declared, and what is decided about them when all are known.
/// Pure data.
class Declaration {
 public:
  /// On rank `rank` of `ranks`. `options` outlive it.
  Declaration(const ModelOptions& options, int ranks, int rank)
      : options_{options}, ranks_{ranks}, place_{model_place(options, rank)} {}

  /// Returns the unit's index. Errors as ShardedModel::add_unit.
  std::size_t add_unit(std::string name, std::vector<ParameterSpec> specs,
                       const UnitOptions& options);
  void declare_order(const std::vector<std::size_t>& forward);

  /// All units are known: decides how long each stays gathered, and whose optimizer state is in the
  /// host pool. ConfigError where options do not suit the units.
  void decide();
  /// What rank `rank` has of each unit. Those that are elsewhere along `pipe` have no segments from
  /// here on.
  void decide_owned(const Sharding& group, int rank);

  [[nodiscard]] const UnitPlans& plans() const noexcept { return plans_; }
  /// All units as declared: also those that are not here, and whole parameters.
  [[nodiscard]] std::vector<DeclaredUnit> units() const;
  /// Whether this rank has a unit.
  [[nodiscard]] bool is_here(std::size_t unit) const noexcept;
  [[nodiscard]] UseOrder& order() noexcept { return order_; }
  [[nodiscard]] bool order_is_declared() const noexcept { return order_is_declared_; }
  /// All units in the order in which a forward pass opens them: as declare_order says, then as
  /// declared.
  [[nodiscard]] std::vector<std::size_t> pass_order() const;
  /// The most blocks whose gradients are on their way back at once, as the declared order has it.
  [[nodiscard]] int most_pending() const;
  /// The same text on ranks that have declared the same.
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] UnitLayout whole_layout(const UnitLayout& layout) const;
  void resolve_aliases(UnitPlan& unit);
  void alias(UnitPlan& unit, std::size_t parameter, const TiedTo& tie);
  void decide_residence();
  void decide_offload();
  void check_sums() const;
  void check_mesh_is_used() const;

  const ModelOptions& options_;
  int ranks_;
  ModelPlace place_;
  UnitPlans plans_;
  std::vector<UnitLayout> declared_;  // by unit: of whole parameters
  std::unordered_set<std::string> names_;
  std::int64_t elems_ = 0;  // of all units, padded
  std::uint32_t next_parameter_id_ = 0;
  std::vector<std::size_t> forward_;  // as declare_order was told, of all places along pipe
  UseOrder order_;
  bool order_is_declared_ = false;
};

}  // namespace tessera::engine

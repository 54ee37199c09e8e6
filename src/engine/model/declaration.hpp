#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/plan/unit_plan.hpp"
#include "engine/plan/use_order.hpp"
#include "engine/plan/whole_units.hpp"
#include "engine/rules/unit_rules.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::engine {

/// The units of a model as they are declared, and what is decided once all are known. Pure data.
class Declaration {
 public:
  /// For rank `rank` of `ranks`. `options` outlive it.
  Declaration(const ModelOptions& options, int ranks, int rank)
      : options_{options}, ranks_{ranks}, place_{model_place(options, rank)} {}

  /// Returns the unit's index. Errors as in ShardedModel::add_unit.
  std::size_t add_unit(std::string name, std::vector<ParameterSpec> specs,
                       const UnitOptions& options);
  void declare_order(const std::vector<std::size_t>& forward);

  /// Called when all units are known. Decides how long each stays gathered, and which optimizer
  /// state is in the host pool. Throws ConfigError if the options do not suit the units.
  void decide();
  /// Decides which part of each unit rank `rank` keeps. Units elsewhere along `pipe` lose their
  /// segments here.
  void decide_owned(const Sharding& group, int rank);

  [[nodiscard]] const UnitPlans& plans() const noexcept { return plans_; }
  /// The units that are kept whole although the strategy shards them.
  [[nodiscard]] const std::vector<WholeUnits>& whole_units() const noexcept { return whole_; }
  /// Freezes a trained parameter for now, or ends that.
  void set_frozen(const ParameterRef& at, bool frozen) {
    plans_[at.unit].frozen[at.parameter] = frozen;
  }
  /// All units as declared, with whole parameters, including units that this rank does not have.
  [[nodiscard]] std::vector<DeclaredUnit> units() const;
  /// Whether this rank has the unit.
  [[nodiscard]] bool is_here(std::size_t unit) const noexcept;
  [[nodiscard]] UseOrder& order() noexcept { return order_; }
  [[nodiscard]] bool order_is_declared() const noexcept { return order_is_declared_; }
  /// All units in the order in which a forward pass opens them: first as declare_order says,
  /// then as declared.
  [[nodiscard]] std::vector<std::size_t> pass_order() const;
  /// A text that is equal on ranks with equal declarations.
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] UnitLayout whole_layout(const UnitLayout& layout) const;
  void resolve_aliases(UnitPlan& unit);
  void alias(UnitPlan& unit, std::size_t parameter, const TiedTo& tie);
  void decide_residence();
  void decide_whole();
  void keep_whole(StateTensor what, const std::vector<UnitBytes>& bytes, int slots);
  void decide_offload();
  void check_sums() const;
  void check_mesh_is_used() const;

  const ModelOptions& options_;
  int ranks_;
  ModelPlace place_;
  UnitPlans plans_;
  std::vector<UnitLayout> declared_;  // by unit: the layout of whole parameters
  std::unordered_set<std::string> names_;
  std::int64_t elems_ = 0;  // padded elements of all units
  std::uint32_t next_parameter_id_ = 0;
  std::vector<std::size_t> forward_;  // as given to declare_order, over all places along pipe
  UseOrder order_;
  bool order_is_declared_ = false;
  std::vector<WholeUnits> whole_;
};

}  // namespace tessera::engine

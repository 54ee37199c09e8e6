#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/unit/gradient_pool.hpp"
#include "engine/unit/live_unit.hpp"

namespace tessera::engine {

/// A model's units on this rank, and the memory that they share.
///
/// Memory: all of it taken in the constructor.
class LiveUnits {
 public:
  /// `plans` outlive it. `order`: the declared order of uses, if any.
  LiveUnits(World& world, const UnitPlans& plans, Journal& journal, const ModelOptions& options,
            const Sharding& group, const UseOrder& order);

  [[nodiscard]] std::size_t size() const noexcept { return units_.size(); }
  [[nodiscard]] LiveUnit& operator[](std::size_t unit) noexcept { return units_[unit]; }
  [[nodiscard]] const LiveUnit& operator[](std::size_t unit) const noexcept { return units_[unit]; }
  [[nodiscard]] auto begin() noexcept { return units_.begin(); }
  [[nodiscard]] auto end() noexcept { return units_.end(); }
  [[nodiscard]] auto begin() const noexcept { return units_.begin(); }
  [[nodiscard]] auto end() const noexcept { return units_.end(); }

  /// *Collective.* Called before a micro-batch begins while no other is in flight, and before an
  /// evaluation or an export. Where rank 0 keeps the parameters (dp), the others get copies, unit
  /// by unit in `order`.
  void copy_from_rank0(const std::vector<std::size_t>& order);

  [[nodiscard]] const UnitPlans& plans() const noexcept { return plans_; }
  /// Whether they have gradients: false in a model for inference.
  [[nodiscard]] bool train() const noexcept { return gradients_ != nullptr; }
  [[nodiscard]] ParameterPool& parameters() noexcept { return parameters_; }
  [[nodiscard]] const ParameterPool& parameters() const noexcept { return parameters_; }
  [[nodiscard]] GradientPool& gradients() const noexcept { return *gradients_; }
  [[nodiscard]] UpdatePool& updates() const noexcept { return *updates_; }

 private:
  const UnitPlans& plans_;
  ParameterPool parameters_;
  std::unique_ptr<GradientPool> gradients_;
  std::unique_ptr<UpdatePool> updates_;
  std::vector<LiveUnit> units_;
};

}  // namespace tessera::engine

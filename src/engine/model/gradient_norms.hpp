#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/unit/live_units.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Norms of the reduced gradients of each parameter, before they are averaged.
///
/// Each shard of a parameter is summed by one rank, and the shards' sums are added in one order on
/// all ranks, so that the norms have the same bits under every strategy.
class GradientNorms {
 public:
  /// All of them outlive it. Gradients have been reduced, and settled on the compute stream.
  GradientNorms(World& world, const LiveUnits& units, const ShardPlace& place);

  /// *Collective.* Returns the norms by unit and parameter; 0 for a parameter without a gradient.
  /// Device memory for the sums is taken for the time of the call. Waits.
  [[nodiscard]] std::vector<std::vector<double>> compute(Norm norm) const;

 private:
  /// A run of a parameter's gradient that this rank sums.
  struct Part {
    std::size_t number;  // of the parameter, over all units
    int shard;
    View gradient;
  };

  void add_squares(double* sums) const;
  void find_largest(double* largest) const;
  [[nodiscard]] std::vector<double> reduced(std::size_t each, Norm norm) const;

  World& world_;
  const LiveUnits& units_;
  const ShardPlace& place_;
  std::size_t parameters_ = 0;  // over all units
  std::vector<Part> parts_;
};

/// The calls of `scale_gradient` and `clear_gradient` in a step, for the step's label: ranks whose
/// calls differ do not agree in it.
class Scalings {
 public:
  void scaled(const ParameterRef& at, float factor) noexcept;
  void cleared(const ParameterRef& at) noexcept;
  /// Usually empty.
  [[nodiscard]] std::string describe() const;

 private:
  void add(const ParameterRef& at, std::uint64_t what) noexcept;

  int count_ = 0;
  std::uint64_t digest_ = 0;  // of the calls in order
};

/// Multiplies what this rank keeps of a parameter's reduced gradient by `factor`. Enqueues on the
/// compute stream.
void scale_gradient(World& world, const LiveUnit& unit, std::size_t parameter, float factor);
/// Sets it to 0, whatever it is. Enqueues on the compute stream.
void clear_gradient(World& world, const LiveUnit& unit, std::size_t parameter);

}  // namespace tessera::engine

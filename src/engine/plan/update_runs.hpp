#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/plan/parameter_rules.hpp"
#include "engine/plan/unit_plan.hpp"
#include "kernels/update/update_run.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// The weights of a segment that this rank's optimizer updates. Views that do not apply are empty.
struct UpdatedWeights {
  View masters = {};     ///< fp32: whole masters, or fp32 parameters themselves
  View parameters = {};  ///< of 16 bits: the rounded copies
  View remainders = {};  ///< instead of masters
  bool on_host = false;  ///< whether separate masters or remainders are in the host pool
};

/// What an optimizer updates of one segment: elements `Owned::updates`.
struct UpdatedSegment {
  UpdatedWeights weights;
  View gradient;
};

/// Neighbours in one segment whose parameters are updated alike.
struct UpdateRun {
  kernels::UpdateRun update;
  ParameterRule rule;
  const ParameterInfo* parameter = nullptr;  ///< the run's first parameter
  const TensorPart* part = nullptr;  ///< this rank's part, where the run lies in one parameter
  std::vector<std::span<float>> states = {};  ///< states of a user's optimizer
  std::size_t segment = 0;                    ///< index within the unit
  std::int64_t first = 0;                     ///< counted from the segment's first updated element
};

/// One state of the optimizer for what this rank updates of a segment.
struct StateArray {
  void* values = nullptr;         ///< in the MomentFormat; fp32 for a user's optimizer
  float* scales = nullptr;        ///< scales of 8-bit moments
  std::size_t element_bytes = 0;  ///< per element of `values`
};

/// How an optimizer's state is laid out, and which elements are updated together. Where it matters
/// which parameter an element belongs to (a user's optimizer, stochastic rounding, 8-bit moments),
/// each run lies in one parameter.
class UpdateLayout {
 public:
  /// Keeps references to both.
  UpdateLayout(const Optimizer& optimizer, const OptimizerOptions& options);

  /// Bytes of the state for what this rank updates of `unit`.
  [[nodiscard]] std::size_t state_bytes(const UnitPlan& unit) const;
  /// Takes the states of what this rank updates of segment `segment` from `arena`.
  [[nodiscard]] std::vector<StateArray> take_states(const UnitPlan& unit, std::size_t segment,
                                                    Arena& arena) const;
  /// The runs of segment `segment` over `arrays`, without parameters that are frozen for now. They
  /// point into `unit`.
  [[nodiscard]] std::vector<UpdateRun> runs(const UnitPlan& unit, std::size_t segment,
                                            const UpdatedSegment& updated,
                                            const std::vector<ParameterRule>& rules,
                                            const std::vector<StateArray>& arrays) const;

 private:
  [[nodiscard]] std::size_t element_bytes() const noexcept;
  [[nodiscard]] std::size_t array_bytes(const Range& range) const noexcept;
  [[nodiscard]] std::size_t scale_bytes(const Range& range) const noexcept;

  const OptimizerOptions& options_;
  std::size_t arrays_;
  bool custom_;
  bool quantised_;
};

}  // namespace tessera::engine

#include "engine/unit/update_on_device.hpp"

namespace tessera::engine {
namespace {

/// The masters of a segment, or their remainders, without memory; empty if there are none.
View masters_of(const UnitPlan& plan, std::size_t segment, MasterWeights kind) {
  const SegmentDTypes& dtypes = plan.layout.segments()[segment].dtypes();
  if (dtypes.parameter == dtypes.master) { return {}; }
  const DType kept = kind == MasterWeights::fp32 ? dtypes.master : DType::bf16;
  return {nullptr, plan.owned[segment].updates.elems, kept};
}

}  // namespace

std::size_t UpdateOnDevice::master_bytes(const UnitPlan& plan, MasterWeights kind) {
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    bytes += Arena::need(masters_of(plan, s, kind).bytes());
  }
  return bytes;
}

UpdateOnDevice::UpdateOnDevice(const UnitPlan& plan, const ParameterHome& parameters,
                               const GradientHome& gradients, const Masters& masters)
    : UpdateHome{plan},
      world_{masters.world},
      parameters_{parameters},
      gradients_{gradients},
      part_{masters.kind == MasterWeights::fp32 ? kernels::MasterPart::value
                                                : kernels::MasterPart::remainder} {
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    View& view = masters_.emplace_back(masters_of(plan, s, masters.kind));
    if (view.elems > 0) { view.data = masters.arena.take(view.bytes()); }
  }
}

UpdatedSegment UpdateOnDevice::updated(std::size_t segment) const {
  const Owned& owned = plan().owned[segment];
  const std::int64_t first = owned.updates.first - owned.parameters.first;
  const View own = parameters_.resident(segment).slice(first, owned.updates.elems);
  const View kept = masters_[segment];
  const View gradient = gradients_.resident(segment);
  if (kept.elems == 0) { return {{.masters = own}, gradient}; }
  if (part_ == kernels::MasterPart::value) {
    return {{.masters = kept, .parameters = own}, gradient};
  }
  return {{.parameters = own, .remainders = kept}, gradient};
}

void UpdateOnDevice::update(const UpdateRule& /*rule*/, UpdateRuns& together) {
  await_copies(world_.compute_stream());
  for (const UpdateRun& run : runs()) { together.push_back(&run); }
}

}  // namespace tessera::engine

#include "engine/unit/update_on_device.hpp"

namespace tessera::engine {

UpdateOnDevice::UpdateOnDevice(const UnitPlan& plan, const ParameterHome& parameters,
                               const GradientHome& gradients, const Masters& masters)
    : UpdateHome{plan},
      world_{masters.world},
      parameters_{parameters},
      gradients_{gradients},
      part_{part_of(masters.kind)} {
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    View& view = masters_.emplace_back(masters_of(plan, s, masters.kind));
    if (view.elems > 0) { view.data = masters.arena.take(view.bytes()); }
  }
}

UpdatedSegment UpdateOnDevice::updated(std::size_t segment) const {
  const Owned& owned = plan().owned[segment];
  const std::int64_t first = owned.updates.first - owned.parameters.first;
  const View own = parameters_.resident(segment).slice(first, owned.updates.elems);
  return {weights_of(own, masters_[segment], part_, /*on_host=*/false),
          gradients_.resident(segment)};
}

void UpdateOnDevice::update(const UpdateRule& /*rule*/, UpdateRuns& together) {
  await_copies(world_.compute_stream());
  for (const UpdateRun& run : runs()) { together.push_back(&run); }
}

}  // namespace tessera::engine

#include "engine/master_store.hpp"

namespace tessera::engine {

MasterStore::MasterStore(World& world, const Units& units, const GradientStore& gradients) {
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto segments = units[u].layout.segments();
    auto& views = masters_.emplace_back(segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const SegmentDTypes& dtypes = segments[s].dtypes();
      if (dtypes.parameter == dtypes.master) { continue; }
      views[s] = {nullptr, gradients.resident_range(u, s).elems, dtypes.master};
      bytes += Arena::need(views[s].bytes());
    }
  }
  if (bytes == 0) { return; }
  arena_ = Arena{world.allocate(Category::optimizer, bytes, "master weights")};
  for (auto& views : masters_) {
    for (View& view : views) {
      if (view.elems > 0) { view.data = arena_.take(view.bytes()); }
    }
  }
}

View updated_weights(const ParameterStore& parameters, const MasterStore& masters,
                     const GradientStore& gradients, std::size_t unit, std::size_t segment) {
  const View master = masters.resident(unit, segment);
  if (master.elems > 0) { return master; }
  const Range range = gradients.resident_range(unit, segment);
  const std::int64_t first = parameters.resident_range(unit, segment).first;
  return parameters.resident(unit, segment).slice(range.first - first, range.elems);
}

}  // namespace tessera::engine

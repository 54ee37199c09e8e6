#include "engine/master_store.hpp"

namespace tessera::engine {

MasterStore::MasterStore(World& world, const Units& units, const GradientStore& gradients,
                         MasterWeights kind)
    : part_{kind == MasterWeights::fp32 ? kernels::MasterPart::value
                                        : kernels::MasterPart::remainder} {
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto segments = units[u].layout.segments();
    auto& views = kept_.emplace_back(segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const SegmentDTypes& dtypes = segments[s].dtypes();
      if (dtypes.parameter == dtypes.master || units[u].offloaded) { continue; }
      const DType kept = kind == MasterWeights::fp32 ? dtypes.master : DType::bf16;
      views[s] = {nullptr, gradients.resident_range(u, s).elems, kept};
      bytes += Arena::need(views[s].bytes());
    }
  }
  if (bytes == 0) { return; }
  arena_ = Arena{world.allocate(Category::optimizer, bytes, "master weights")};
  for (auto& views : kept_) {
    for (View& view : views) {
      if (view.elems > 0) { view.data = arena_.take(view.bytes()); }
    }
  }
}

UpdatedWeights updated_weights(const ParameterStore& parameters, const MasterStore& masters,
                               const GradientStore& gradients, std::size_t unit,
                               std::size_t segment) {
  const Range range = gradients.resident_range(unit, segment);
  const std::int64_t first = range.first - parameters.resident_range(unit, segment).first;
  const View own = parameters.resident(unit, segment).slice(first, range.elems);
  const View kept = masters.resident(unit, segment);
  if (kept.elems == 0) { return {.masters = own}; }
  if (masters.part() == kernels::MasterPart::value) { return {.masters = kept, .parameters = own}; }
  return {.parameters = own, .remainders = kept};
}

}  // namespace tessera::engine

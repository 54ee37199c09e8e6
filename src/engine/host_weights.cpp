#include "engine/host_weights.hpp"

namespace tessera::engine {

HostWeights::HostWeights(World& world, const Units& units, ParameterStore& parameters,
                         const GradientStore& gradients)
    : world_{world}, units_{units}, parameters_{parameters}, readers_{world.device().make_event()} {
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    updated_.push_back(world.device().make_event());
    auto& segments = segments_.emplace_back(units[u].layout.segments().size());
    for (std::size_t s = 0; units[u].offloaded && s < segments.size(); ++s) {
      const Range range = gradients.resident_range(u, s);
      if (range.elems == 0) { continue; }
      const SegmentDTypes& dtypes = units[u].layout.segments()[s].dtypes();
      Segment& segment = segments[s];
      const std::int64_t first = range.first - parameters.resident_range(u, s).first;
      segment.parameter = parameters.resident(u, s).slice(first, range.elems);
      segment.master = {nullptr, range.elems, dtypes.master};
      segment.rounded = {nullptr, dtypes.parameter == dtypes.master ? 0 : range.elems,
                         dtypes.parameter};
      bytes += Arena::need(segment.master.bytes()) + Arena::need(segment.rounded.bytes());
    }
  }
  arena_ = Arena{world.allocate_host(Category::optimizer, bytes, "weights in the host pool")};
  for (auto& segments : segments_) {
    for (Segment& segment : segments) {
      for (View* const view : {&segment.master, &segment.rounded}) {
        if (view->elems > 0) { view->data = arena_.take(view->bytes()); }
      }
    }
  }
}

void HostWeights::copy_parameters(std::size_t unit) {
  for (const Segment& segment : segments_[unit]) {
    if (segment.parameter.elems == 0) { continue; }
    world_.device().copy_out(segment.sent().data, segment.parameter.data, segment.parameter.bytes(),
                             world_.compute_stream());
  }
  world_.compute_stream().wait();
}

void HostWeights::begin_update() {
  world_.compute_stream().record(readers_.get());
  world_.offload_stream(CopyLane::states).wait_for(readers_.get());
}

void HostWeights::send(std::size_t unit) {
  const Stream lane = world_.offload_stream(CopyLane::states);
  world_.host_stream().record(updated_[unit].get());
  lane.wait_for(updated_[unit].get());
  for (const Segment& segment : segments_[unit]) {
    if (segment.parameter.elems == 0) { continue; }
    world_.reload(segment.parameter.data, segment.sent().data, segment.parameter.bytes(),
                  units_[unit].name, CopyLane::states);
  }
  parameters_.arrive(unit, lane);
}

}  // namespace tessera::engine

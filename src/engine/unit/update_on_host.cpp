#include "engine/unit/update_on_host.hpp"

#include <span>

#include "kernels/table.hpp"

namespace tessera::engine {

UpdateOnHost::Segment UpdateOnHost::without_memory(const UnitPlan& plan, std::size_t segment) {
  const std::int64_t elems = plan.owned[segment].updates.elems;
  const SegmentDTypes& dtypes = plan.layout.segments()[segment].dtypes();
  return {.master = {nullptr, elems, dtypes.master},
          .rounded = {nullptr, dtypes.parameter == dtypes.master ? 0 : elems, dtypes.parameter},
          .parameter = {}};
}

std::size_t UpdateOnHost::weight_bytes(const UnitPlan& plan) {
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    const Segment segment = without_memory(plan, s);
    bytes += Arena::need(segment.master.bytes()) + Arena::need(segment.rounded.bytes());
  }
  return bytes;
}

UpdateOnHost::UpdateOnHost(World& world, const UnitPlan& plan, ParameterHome& parameters,
                           HostGradients& gradients, Arena& arena)
    : UpdateHome{plan},
      world_{world},
      host_{world},
      parameters_{parameters},
      gradients_{gradients},
      updated_{world.device().make_event()} {
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    Segment& segment = segments_.emplace_back(without_memory(plan, s));
    const Owned& owned = plan.owned[s];
    if (owned.updates.elems == 0) { continue; }
    segment.parameter = parameters.resident(s).slice(owned.updates.first - owned.parameters.first,
                                                     owned.updates.elems);
    for (View* const view : {&segment.master, &segment.rounded}) {
      if (view->elems > 0) { view->data = arena.take(view->bytes()); }
    }
  }
}

UpdatedSegment UpdateOnHost::updated(std::size_t segment) const {
  const Segment& of = segments_[segment];
  return {{.masters = of.master, .parameters = of.rounded, .on_host = true},
          gradients_.resident(segment)};
}

// In fp32 training masters are copied from the parameters.
FirstValue UpdateOnHost::first_masters(std::size_t segment) const {
  const Segment& of = segments_[segment];
  return {of.rounded.elems > 0 ? of.master : View{}, kernels::MasterPart::value, /*on_host=*/true};
}

void UpdateOnHost::begin() {
  for (const Segment& segment : segments_) {
    if (segment.parameter.elems == 0) { continue; }
    world_.device().copy_out(segment.sent().data, segment.parameter.data, segment.parameter.bytes(),
                             world_.compute_stream());
  }
  world_.compute_stream().wait();
}

void UpdateOnHost::update(const UpdateRule& rule, UpdateRuns& /*together*/) {
  await_copies(host_.compute_stream());  // copies to the device run after that stream
  if (!runs().empty()) {
    // The host reads the optimizer while the rate may change, so the rate is captured by value.
    const auto work = [runs = std::span<const UpdateRun>{runs()}, scalars = rule.on_host,
                       lr = rule.learning_rate, &optimizer = rule.optimizer](Stream cpu) {
      UpdateRuns all;
      for (const UpdateRun& run : runs) { all.push_back(&run); }
      launch_updates(kernels::cpu_table(), all, optimizer, lr, scalars, cpu);
    };
    host_.compute(work, "update", plan().name);
  }
  gradients_.release();
  send();
}

Stream UpdateOnHost::state_writer() const {
  return host_.compute_stream();
}

void UpdateOnHost::send() {
  const Stream copies = host_.copy_stream(world::CopyKind::states);
  host_.compute_stream().record(updated_.get());
  copies.wait_for(updated_.get());
  for (const Segment& segment : segments_) {
    if (segment.parameter.elems == 0) { continue; }
    host_.copy_in(segment.parameter.data, segment.sent().data, segment.parameter.bytes(),
                  plan().name, world::CopyKind::states);
  }
  parameters_.arrive(copies);
}

}  // namespace tessera::engine

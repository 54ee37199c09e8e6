#include "engine/unit/wire.hpp"

#include "kernels/table.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {

View Wire::view(std::size_t segment, View gradient) const {
  if (slot_ == nullptr) { return gradient; }
  const View copy = plan_.wire_view(segment, slot_->data());
  return copy.elems > 0 ? copy : gradient;
}

void Wire::load(const ViewOf& gradients, Stream stream) {
  if (plan_.wire_bytes() == 0) { return; }
  slot_ = &ring_.acquire(plan_.name, plan_.wire_bytes(), stream);
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    const View copy = plan_.wire_view(s, slot_->data());
    if (copy.elems > 0) { world::kernels_of(world_).cast(copy, gradients(s), stream); }
  }
}

void Wire::unload(const ViewOf& gradients, Stream stream) {
  if (slot_ == nullptr) { return; }
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    const View copy = plan_.wire_view(s, slot_->data());
    const Range range = plan_.owned[s].updates;
    if (copy.elems == 0 || range.elems == 0) { continue; }
    world::kernels_of(world_).cast(gradients(s).slice(range.first, range.elems),
                                   copy.slice(range.first, range.elems), stream);
  }
  ring_.release(*slot_, stream);
  slot_ = nullptr;
}

}  // namespace tessera::engine

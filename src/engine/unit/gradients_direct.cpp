#include "engine/unit/gradients_direct.hpp"

#include "kernels/table.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {

bool DirectGradients::can_open() const {
  return is_open() || !plan().trainable() || !reduced() || late_slots_().free() > 0;
}

View DirectGradients::resident(std::size_t segment) const {
  const Range range = plan().owned[segment].updates;
  return plan().gradient_view(segment, kept()).slice(range.first, range.elems);
}

bool DirectGradients::make_room() {
  if (reduced()) {
    slot_ = &late_slots_().acquire(plan().name, plan().gradient_bytes(), world().compute_stream());
    return true;
  }
  const bool first = !started();
  start();
  return first;
}

void DirectGradients::keep_on_device() {
  if (slot_ == nullptr) { return; }
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    const View to = resident(s);
    if (to.elems == 0) { continue; }
    world::kernels_of(world()).accumulate(to.values(), updated(s).values(), to.elems,
                                          lane().stream());
  }
  late_slots_().release(*slot_, lane().stream());
  slot_ = nullptr;
}

void DirectGradients::keep_on_host() {
  host()->keep(
      lane().stream(), [this](std::size_t segment) { return updated(segment); },
      /*first=*/true);
  host()->complete();
}

}  // namespace tessera::engine

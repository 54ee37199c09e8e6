#include "engine/unit/gradients_in_slots.hpp"

#include "kernels/table.hpp"
#include "world/host_pool.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {

bool GradientsInSlots::can_open() const {
  return is_open() || !plan().trainable() || ring_.free() > 0;
}

bool GradientsInSlots::conclude() {
  if (reduced() || !started()) { return reduced(); }
  set_reduced();
  if (host() != nullptr) { host()->complete(); }
  return true;
}

bool GradientsInSlots::shares_slots_with(const GradientHome& other) const {
  const auto* const same = dynamic_cast<const GradientsInSlots*>(&other);
  return same != nullptr && &same->ring_ == &ring_;
}

bool GradientsInSlots::make_room() {
  slot_ = &ring_.acquire(plan().name, plan().gradient_bytes(), world().compute_stream());
  return true;
}

View GradientsInSlots::resident(std::size_t segment) const {
  const Range range = plan().owned[segment].updates;
  if (range.elems == 0 || kept() == nullptr) { return plan().gradient_view(segment, nullptr); }
  if (traits().gradients == Holding::sharded) {
    return plan().gradient_shard_view(segment, kept());
  }
  return plan().gradient_view(segment, kept()).slice(range.first, range.elems);
}

void GradientsInSlots::keep_on_device() {
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    const View to = resident(s);
    if (to.elems == 0) { continue; }
    const View from = updated(s);
    if (started()) {
      world::kernels_of(world()).accumulate(to.values(), from.values(), to.elems, lane().stream());
    } else {
      world().device().copy(to.data, from.data, to.bytes(), lane().stream());
    }
  }
  start();
  give_back(lane().stream());
}

void GradientsInSlots::keep_on_host() {
  host()->keep(
      lane().stream(), [this](std::size_t segment) { return updated(segment); },
      /*first=*/!started());
  if (reduced()) { host()->complete(); }
  start();
  give_back(world::HostPool{world()}.copy_stream(world::CopyKind::states));
}

void GradientsInSlots::give_back(Stream last) {
  ring_.release(*slot_, last);
  slot_ = nullptr;
}

// ---------------------------------------------------------------------------------------- export

bool GradientsInSlots::exports_in_slot() const {
  return traits().gradients == Holding::sharded || kept() == nullptr;
}

void GradientsInSlots::take_export_slot() {
  slot_ = &ring_.acquire(plan().name, plan().gradient_bytes(), lane().stream());
  if (plan().updated_on_host()) { bring_from_host(); }
}

// Copies into the slot, once everything has reached the host pool.
void GradientsInSlots::bring_from_host() {
  const Stream copies = world::HostPool{world()}.copy_stream(world::CopyKind::states);
  lane().order_before(copies);
  host()->order_after_host(copies);
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    const View from = host()->resident(s);
    if (from.elems == 0) { continue; }
    world::HostPool{world()}.copy_in(updated(s).data, from.data, from.bytes(), plan().name,
                                     world::CopyKind::states);
  }
  lane().order_after(copies);
}

void GradientsInSlots::end_export() {
  if (slot_ != nullptr) { give_back(world().compute_stream()); }
}

}  // namespace tessera::engine

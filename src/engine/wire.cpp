#include "engine/wire.hpp"

#include "engine/slot_plan.hpp"
#include "kernels/table.hpp"

namespace tessera::engine {

Wire::Wire(World& world, const std::vector<UnitState>& units)
    : world_{world}, units_{units}, slot_(units.size(), nullptr) {
  const SlotPlan plan = SlotPlan::make(units, /*shared_slots=*/1, &UnitState::wire_bytes);
  arena_ = Arena{
      world.allocate(Category::reduce, plan.bytes(), "gradients on the wire", BufferUse::parts)};
  rings_ = plan.cut(world, Category::reduce, arena_, world.options().poison);
  ring_ = plan.ring_of_unit;
}

View Wire::view(std::size_t unit, std::size_t segment, View gradient) const {
  if (slot_[unit] == nullptr) { return gradient; }
  const View copy = units_[unit].wire_view(segment, slot_[unit]->data());
  return copy.elems > 0 ? copy : gradient;
}

void Wire::load(std::size_t unit, const ViewOf& gradients) {
  const UnitState& state = units_[unit];
  if (state.wire_bytes() == 0) { return; }
  const Stream stream = world_.reduce_channel().stream;
  slot_[unit] = &rings_[ring_[unit]].acquire(state.name, state.wire_bytes(), stream);
  for (std::size_t s = 0; s < state.layout.segments().size(); ++s) {
    const View copy = state.wire_view(s, slot_[unit]->data());
    if (copy.elems > 0) { world_.kernels().cast(copy, gradients(s), stream); }
  }
}

void Wire::unload(std::size_t unit, const ViewOf& gradients,
                  const std::function<Range(std::size_t segment)>& kept) {
  if (slot_[unit] == nullptr) { return; }
  const UnitState& state = units_[unit];
  const Stream stream = world_.reduce_channel().stream;
  for (std::size_t s = 0; s < state.layout.segments().size(); ++s) {
    const View copy = state.wire_view(s, slot_[unit]->data());
    const Range range = kept(s);
    if (copy.elems == 0 || range.elems == 0) { continue; }
    world_.kernels().cast(gradients(s).slice(range.first, range.elems),
                          copy.slice(range.first, range.elems), stream);
  }
  rings_[ring_[unit]].release(*slot_[unit], stream);
  slot_[unit] = nullptr;
}

}  // namespace tessera::engine

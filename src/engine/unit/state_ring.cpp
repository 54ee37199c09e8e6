#include "engine/unit/state_ring.hpp"

#include <functional>

#include "world/host_pool.hpp"

namespace tessera::engine {

std::size_t BroughtPiece::bytes_of(std::span<const ParkedArray> arrays,
                                   std::int64_t elems) noexcept {
  std::size_t bytes = 0;
  for (const ParkedArray& array : arrays) { bytes += Arena::need(array.bytes_of(elems)); }
  return bytes;
}

void BroughtPiece::for_each(const std::function<void(void*, void*, std::size_t)>& copy) const {
  std::byte* at = slot_;
  for (const ParkedArray& array : arrays_) {
    const std::size_t bytes = array.bytes_of(elems_);
    copy(array.data + array.bytes_of(first_), at, bytes);
    at += Arena::need(bytes);
  }
}

void* BroughtPiece::moved(void* host) const noexcept {
  void* found = host;
  for_each([&](void* from, void* to, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    const auto* const element = static_cast<const std::byte*>(host);
    const std::less<const std::byte*> before;
    if (before(element, begin) || !before(element, begin + bytes)) { return; }
    found = static_cast<std::byte*>(to) + (element - begin);
  });
  return found;
}

// -------------------------------------------------------------------------------------------- ring

StateRing::StateRing(World& world, std::size_t slot_bytes)
    : world_{&world}, updated_{world.device().make_event()} {
  if (slot_bytes == 0) { return; }
  arena_ = Arena{world.allocate(Category::optimizer, kSlots * Arena::need(slot_bytes),
                                "optimizer state on its way", BufferUse::parts)};
  ring_ = SlotRing{
      {world.device(), world.memory(), Category::optimizer, world.options().testing.poison},
      arena_,
      kSlots,
      slot_bytes};
}

// A copy in waits for the slot's last reader, the copy out of three pieces before.
void StateRing::pass(std::span<const ParkedArray> arrays, std::int64_t first, std::int64_t elems,
                     const std::string& unit,
                     const std::function<void(const BroughtPiece&, Stream)>& launch) {
  world::HostPool pool{*world_};
  const Stream in = pool.copy_stream(world::CopyKind::states_in);
  const Stream out = pool.copy_stream(world::CopyKind::states);
  const Stream update = pool.update_stream();
  Slot& slot = ring_.acquire(unit, BroughtPiece::bytes_of(arrays, elems), in);
  const BroughtPiece piece{arrays, first, elems, slot.data()};
  piece.for_each([&](void* host, void* device, std::size_t bytes) {
    pool.copy_in(device, host, bytes, unit, world::CopyKind::states_in);
  });
  in.record(slot.produced());
  update.wait_for(slot.produced());
  pool.update([&](Stream stream) { launch(piece, stream); }, unit);
  update.record(updated_.get());
  out.wait_for(updated_.get());
  piece.for_each([&](void* host, void* device, std::size_t bytes) {
    pool.copy_out(host, device, bytes, unit, world::CopyKind::states);
  });
  ring_.release(slot, out);
}

}  // namespace tessera::engine

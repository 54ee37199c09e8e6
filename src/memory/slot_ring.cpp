#include "tessera/memory/slot_ring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera {
namespace {

[[noreturn]] void refuse_exhausted(const std::string& owner, const std::vector<Slot>& slots) {
  std::vector<std::string> owners;
  for (const Slot& slot : slots) { owners.push_back(slot.owner()); }
  throw ContractError(fmt::format("no free slot for {}: all {} are taken, by {}", owner,
                                  slots.size(), fmt::join(owners, ", ")));
}

}  // namespace

SlotRing::SlotRing(Device& device, Arena& arena, int slots, std::size_t slot_bytes,
                   SlotPoison poison)
    : device_{&device}, poison_{poison}, slots_(narrow<std::size_t>(slots)) {
  for (Slot& slot : slots_) {
    slot.data_ = arena.take(slot_bytes);
    slot.bytes_ = slot_bytes;
    slot.produced_ = device.make_event();
    slot.read_ = device.make_event();
  }
}

Slot& SlotRing::acquire(const std::string& owner, std::size_t bytes, Stream writer) {
  const std::size_t size = slots_.size();
  std::size_t at = 0;
  while (at < size && slots_[(next_ + at) % size].taken_) { ++at; }
  if (at == size) { refuse_exhausted(owner, slots_); }
  Slot& slot = slots_[(next_ + at) % size];
  if (bytes > slot.bytes_) {
    throw ContractError(fmt::format("{} needs {} ({} bytes), a slot has {} ({} bytes)", owner,
                                    format_bytes(bytes), bytes, format_bytes(slot.bytes_),
                                    slot.bytes_));
  }
  std::string name = owner;
  // The reader has waited for the producer, unless the owner gave the slot back unread.
  writer.wait_for(slot.produced_.get());
  writer.wait_for(slot.read_.get());
  slot.owner_ = std::move(name);
  slot.taken_ = true;
  next_ = (next_ + at + 1) % size;
  return slot;
}

void SlotRing::release(Slot& slot, Stream reader) {
  // std::less: a total order over pointers, also of another ring's slot.
  const std::less<const Slot*> before;
  const Slot* const first = slots_.data();
  if (before(&slot, first) || !before(&slot, first + slots_.size())) {
    throw ContractError(fmt::format("the slot of {} belongs to another ring", slot.owner_));
  }
  if (!slot.taken_) {
    throw ContractError(fmt::format("slot released twice; its last owner is {}", slot.owner_));
  }
  if (poison_ == SlotPoison::nan) { device_->fill(slot.data_, 0xFF, slot.bytes_, reader); }
  reader.record(slot.read_.get());
  slot.taken_ = false;
}

int SlotRing::free() const noexcept {
  return static_cast<int>(std::ranges::count_if(slots_, [](const Slot& s) { return !s.taken_; }));
}

}  // namespace tessera

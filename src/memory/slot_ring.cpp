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

unsigned char byte_of(SlotPoison poison) noexcept {
  return poison == SlotPoison::tiny ? 0x01 : 0xFF;
}

}  // namespace

SlotRing::SlotRing(const SlotRingPlace& place, Arena& arena, int slots, std::size_t slot_bytes)
    : device_{&place.device},
      memory_{&place.memory},
      category_{place.category},
      poison_{place.poison},
      slots_(narrow<std::size_t>(slots)) {
  for (Slot& slot : slots_) {
    slot.data_ = arena.take(slot_bytes);
    slot.bytes_ = slot_bytes;
    slot.produced_ = place.device.make_event();
    slot.read_ = place.device.make_event();
  }
}

std::vector<std::string> SlotRing::owners() const {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (slot.taken_) { names.push_back(slot.owner_); }
  }
  return names;
}

Slot& SlotRing::acquire(const std::string& owner, std::size_t bytes, Stream writer) {
  const std::size_t size = slots_.size();
  std::size_t at = 0;
  while (at < size && slots_[(next_ + at) % size].taken_) { ++at; }
  if (at == size) {
    throw ContractError(
        fmt::format("no free {} slot for {}: all {} are taken, by {}; release one first",
                    to_string(category_), owner, size, fmt::join(owners(), ", ")));
  }
  Slot& slot = slots_[(next_ + at) % size];
  if (bytes > slot.bytes_) {
    throw ContractError(fmt::format("{} needs {} ({} bytes), but a {} slot has {} ({} bytes)",
                                    owner, format_bytes(bytes), bytes, to_string(category_),
                                    format_bytes(slot.bytes_), slot.bytes_));
  }
  std::string name = owner;
  CountedMemory use = memory_->occupy(category_, bytes, owner);
  // The reader has waited for the producer, unless the owner released the slot unread.
  writer.wait_for(slot.produced_.get());
  writer.wait_for(slot.read_.get());
  if (slot.poisoned_) {
    device_->check_filled(slot.data_, byte_of(poison_), slot.bytes_,
                          fmt::format("the {} slot of {} was written after its release",
                                      to_string(category_), slot.owner_),
                          writer);
    slot.poisoned_ = false;
  }
  slot.use_ = std::move(use);
  slot.owner_ = std::move(name);
  slot.taken_ = true;
  next_ = (next_ + at + 1) % size;
  return slot;
}

void SlotRing::release(Slot& slot, Stream reader) {
  // std::less: a total order over pointers, even to slots of another ring.
  const std::less<const Slot*> before;
  const Slot* const first = slots_.data();
  if (before(&slot, first) || !before(&slot, first + slots_.size())) {
    throw ContractError(fmt::format("the slot of {} belongs to another ring than this one of {}",
                                    slot.owner_, to_string(category_)));
  }
  if (!slot.taken_) {
    throw ContractError(fmt::format("a {} slot was released twice; its last owner is {}",
                                    to_string(category_), slot.owner_));
  }
  if (poison_ != SlotPoison::off) {
    device_->fill(slot.data_, byte_of(poison_), slot.bytes_, reader);
    slot.poisoned_ = true;
  }
  reader.record(slot.read_.get());
  slot.taken_ = false;
  slot.use_ = {};
}

void SlotRing::require_all_free() const {
  if (free() == size()) { return; }
  throw ContractError(fmt::format("{} slots were never released, by {}", to_string(category_),
                                  fmt::join(owners(), ", ")));
}

int SlotRing::free() const noexcept {
  return static_cast<int>(std::ranges::count_if(slots_, [](const Slot& s) { return !s.taken_; }));
}

}  // namespace tessera

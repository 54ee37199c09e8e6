#include "pipeline/boxes.hpp"

#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera::pipeline {

std::size_t bytes_of(Boundary boundary) {
  expects(boundary.elems >= 1, "Pipeline: a boundary needs 1 element or more");
  return narrow<std::size_t>(boundary.elems) * size_of(boundary.dtype);
}

SlotRing BoxPlace::ring(int slots) const {
  return {{world.device(), world.memory(), Category::activations, world.options().testing.poison},
          arena,
          slots,
          bytes_of(boundary)};
}

View BoxPlace::view(const Slot& slot) const {
  return {slot.data(), boundary.elems, boundary.dtype};
}

void Pair::broadcast(View item, const std::string& label) const {
  channel_.communicator.submit(Batch{label}.broadcast(item, sender_), channel_.stream);
}

Inbox::Inbox(const Link& link, const std::optional<Pair>& pair, const BoxPlace& place)
    : link_{&link},
      pair_{pair},
      place_{place},
      ring_{place.ring(link.to_buffers)},
      held_(link.items.size()) {}

Slot& Inbox::acquire(int number, Stream writer) {
  const auto index = narrow<std::size_t>(number);
  held_[index] = &ring_.acquire(to_string(link_->items[index]), bytes_of(place_.boundary), writer);
  return *held_[index];
}

void Inbox::ask() {
  Slot& slot = acquire(asked_++, pair_->stream());
  pair_->broadcast(place_.view(slot), slot.owner());
  pair_->stream().record(slot.produced());
}

void Inbox::wait_for(int number) const {
  if (!pair_) { return; }
  place_.world.compute_stream().wait_for(held_[narrow<std::size_t>(number)]->produced());
}

View Inbox::open(int number) {
  return place_.view(acquire(number, place_.world.compute_stream()));
}

View Inbox::view(int number) const {
  return place_.view(*held_[narrow<std::size_t>(number)]);
}

void Inbox::close(int number) {
  ring_.release(*held_[narrow<std::size_t>(number)], place_.world.compute_stream());
}

Outbox::Outbox(const Link& link, const Pair& pair, const BoxPlace& place)
    : link_{&link},
      pair_{pair},
      place_{place},
      ring_{place.ring(link.from_buffers)},
      held_(link.items.size()) {}

View Outbox::open(int number) {
  const auto index = narrow<std::size_t>(number);
  open_ = number;
  held_[index] = &ring_.acquire(to_string(link_->items[index]), bytes_of(place_.boundary),
                                place_.world.compute_stream());
  return place_.view(*held_[index]);
}

void Outbox::close() {
  place_.world.compute_stream().record(held_[narrow<std::size_t>(open_)]->produced());
}

void Outbox::send() {
  Slot& slot = *held_[narrow<std::size_t>(sent_++)];
  pair_.stream().wait_for(slot.produced());
  pair_.broadcast(place_.view(slot), slot.owner());
  ring_.release(slot, pair_.stream());
}

}  // namespace tessera::pipeline

#include "tessera/engine/activation_store.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "world/host_pool.hpp"
#include "world/world_life.hpp"

namespace tessera {
namespace {

std::size_t times(int count, std::size_t bytes) {
  return narrow<std::size_t>(count) * Arena::need(bytes);
}

}  // namespace

struct ActivationStore::State {
  struct Entry {
    void* host = nullptr;
    Slot* slot = nullptr;  // while it is on the device
    bool saved = false;    // the host holds it, or will once the offload stream gets there
    bool leaving = false;  // written from this slot: its copy also reads the slot
  };

  world::WorldGuest guest;
  World& world;
  world::HostPool pool;
  ActivationStoreOptions options;
  Arena device;
  Arena host;
  SlotRing ring;
  std::vector<Entry> entries;
  OwnedEvent mark;

  State(World& world_, ActivationStoreOptions options_)
      : guest{world_},
        world{world_},
        pool{world_},
        options{std::move(options_)},
        device{world.allocate(Category::activations, bytes_needed(options).device,
                              options.name + " on the device", BufferUse::parts)},
        host{world.allocate_host(Category::activations, bytes_needed(options).host,
                                 options.name + " in the host pool")},
        ring{
            {world.device(), world.memory(), Category::activations, world.options().testing.poison},
            device,
            options.slots,
            options.bytes},
        entries(narrow<std::size_t>(options.count)),
        mark{world.device().make_event()} {
    for (Entry& entry : entries) { entry.host = host.take(options.bytes); }
  }

  Entry& entry(int index, const char* call) {
    guest.require_world("an ActivationStore");
    if (index >= 0 && index < options.count) { return entries[narrow<std::size_t>(index)]; }
    throw ContractError{fmt::format("{}: there are {} {}, from 0; not {}", call, options.count,
                                    options.name, index)};
  }

  Entry& on_device(int index, const char* call) {
    Entry& found = entry(index, call);
    if (found.slot != nullptr) { return found; }
    throw ContractError{fmt::format("{}: {} {} is not on the device; open or read it first", call,
                                    options.name, index)};
  }

  /// The offload stream waits for the work that is on the compute stream now.
  void order_after_compute() {
    world.compute_stream().record(mark.get());
    pool.copy_stream(world::CopyKind::activations).wait_for(mark.get());
  }

  Slot& acquire(int index, Stream writer) {
    return ring.acquire(fmt::format("{} {}", options.name, index), options.bytes, writer);
  }

  void bring_back(int index, Entry& found) {
    const Stream offload = pool.copy_stream(world::CopyKind::activations);
    found.slot = &acquire(index, offload);
    found.leaving = false;
    pool.copy_in(found.slot->data(), found.host, options.bytes, options.name,
                 world::CopyKind::activations);
    offload.record(found.slot->produced());
  }
};

ActivationStoreBytes ActivationStore::bytes_needed(const ActivationStoreOptions& options) {
  expects(options.count > 0 && options.slots > 0 && options.bytes > 0,
          "ActivationStore: count, slots and bytes must be at least 1");
  return {times(options.slots, options.bytes), times(options.count, options.bytes)};
}

ActivationStore::ActivationStore(World& world, ActivationStoreOptions options)
    : state_{std::make_unique<State>(world, std::move(options))} {}

// Copies may be in flight, and kernels that read the slots.
ActivationStore::~ActivationStore() {
  if (!state_->guest.world_ended()) { state_->world.quiesce(); }
}

void* ActivationStore::open(int index) {
  State& s = *state_;
  State::Entry& entry = s.entry(index, "open");
  if (entry.slot != nullptr) {
    throw ContractError{
        fmt::format("open: {} {} is already open; close it first", s.options.name, index)};
  }
  entry.slot = &s.acquire(index, s.world.compute_stream());
  entry.saved = false;
  entry.leaving = false;
  return entry.slot->data();
}

void ActivationStore::save(int index) {
  State& s = *state_;
  State::Entry& entry = s.on_device(index, "save");
  expects(!entry.saved, "save: the activation is already saved");
  s.order_after_compute();
  s.pool.copy_out(entry.host, entry.slot->data(), s.options.bytes, s.options.name,
                  world::CopyKind::activations);
  entry.saved = true;
  entry.leaving = true;
}

void ActivationStore::close(int index) {
  State& s = *state_;
  State::Entry& entry = s.on_device(index, "close");
  Slot& slot = *std::exchange(entry.slot, nullptr);
  if (!entry.leaving) { return s.ring.release(slot, s.world.compute_stream()); }
  s.order_after_compute();  // the stream now waits for the copy, and so for the slot's readers
  s.ring.release(slot, s.pool.copy_stream(world::CopyKind::activations));
}

void ActivationStore::fetch(int index) {
  State& s = *state_;
  State::Entry& entry = s.entry(index, "fetch");
  if (!entry.saved) {
    throw ContractError{
        fmt::format("fetch: {} {} was never saved; call save first", s.options.name, index)};
  }
  if (entry.slot == nullptr && s.ring.free() > 0) { s.bring_back(index, entry); }
}

const void* ActivationStore::read(int index) {
  State& s = *state_;
  State::Entry& entry = s.entry(index, "read");
  if (entry.slot == nullptr) {
    if (!entry.saved) {
      throw ContractError{
          fmt::format("read: {} {} was never saved; call save first", s.options.name, index)};
    }
    s.bring_back(index, entry);
  }
  if (!entry.leaving) { s.world.compute_stream().wait_for(entry.slot->produced()); }
  return entry.slot->data();
}

}  // namespace tessera

#include <fmt/format.h>

#include "comm/instruments.hpp"
#include "comm/world_state.hpp"

// Copies between the device and the host pool, on a stream of their own.
namespace tessera {

struct OffloadCopies {
  /// What follows stands before the copy in the stream, ...
  static void begin(World::State& state) {
    if (!watched(state)) { return; }
    state.offload_stream.get().call([at = &state] {
      delay(*at, Moment::before);
      at->offload_begin_ns = trace::now_ns();
    });
  }

  /// ... and after it.
  static void end(World::State& state, const char* what, std::size_t bytes,
                  const std::string& name) {
    if (!watched(state)) { return; }
    state.offload_stream.get().call([at = &state, what, bytes, unit = &name] {
      if (at->recorder) {
        at->recorder->add({.kind = trace::Kind::copy,
                           .what = what,
                           .unit = *unit,
                           .bytes = bytes,
                           .begin_ns = at->offload_begin_ns,
                           .end_ns = trace::now_ns(),
                           .stream = "offload"});
      }
      delay(*at, Moment::after);
      ++at->offload_copies;
    });
  }

 private:
  static bool watched(const World::State& state) {
    return state.recorder != nullptr || state.options.delays;
  }
  static void delay(const World::State& state, Moment moment) {
    inject_delay({.delays = state.options.delays, .number = kOffloadNumber}, state.rank,
                 state.offload_copies, moment);
  }
};

MemoryTracker& World::host_memory() noexcept {
  return state_->host_memory;
}

Buffer World::allocate_host(Category category, std::size_t bytes, std::string name) {
  return {*state_->device, state_->host_memory, category,         bytes,
          std::move(name), BufferUse::whole,    BufferPlace::host};
}

Stream World::offload_stream() {
  State& state = *state_;
  if (!state.offload_stream.get()) {
    state.offload_stream = state.device->make_side_stream(fmt::format("offload r{}", state.rank));
  }
  return state.offload_stream.get();
}

void World::offload(void* to_host, const void* from, std::size_t bytes, const std::string& name) {
  const Stream stream = offload_stream();
  OffloadCopies::begin(*state_);
  state_->device->copy_out(to_host, from, bytes, stream);
  OffloadCopies::end(*state_, "offload", bytes, name);
}

void World::reload(void* to, const void* from_host, std::size_t bytes, const std::string& name) {
  const Stream stream = offload_stream();
  OffloadCopies::begin(*state_);
  state_->device->copy_in(to, from_host, bytes, stream);
  OffloadCopies::end(*state_, "reload", bytes, name);
}

}  // namespace tessera

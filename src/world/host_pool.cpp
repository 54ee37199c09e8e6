#include <fmt/format.h>

#include <utility>

#include "comm/instruments.hpp"
#include "device/stream_state.hpp"
#include "world/world_state.hpp"

// The host pool: copies between it and the device, and what the host computes there, on streams of
// their own.
namespace tessera {

struct OffloadCopies {
  static SideStream& lane(World::State& state, CopyLane lane) {
    return state.copies[static_cast<std::size_t>(lane)];
  }
  static std::uint64_t number(CopyLane lane) {
    return lane == CopyLane::activations ? kOffloadNumber : kStatesNumber;
  }
  static Stream stream_of(World::State& state, CopyLane which) {
    SideStream& side = lane(state, which);
    if (!side.stream.get()) {
      const char* const name = which == CopyLane::activations ? "offload" : "states";
      side.stream = state.device->make_side_stream(fmt::format("{} r{}", name, state.rank));
      if (state.work_log && !state.device->computes()) {
        side.stream.get().state()->log_to(state.work_log.get(), state.work_log->add_stream(name));
      }
    }
    return side.stream.get();
  }

  /// What follows stands before the copy in the stream, ...
  static void begin(World::State& state, CopyLane which) {
    SideStream& side = lane(state, which);
    if (state.options.delays) {
      side.stream.get().call(
          [at = &state, &side, which] { delay(*at, side, number(which), DelayPoint::before); });
    }
    if (state.recorder) {
      side.stream.get().tell_time([&side](std::int64_t ns) { side.begin_ns = ns; });
    }
  }

  /// ... and after it.
  static void end(World::State& state, const char* what, std::size_t bytes, const std::string& name,
                  CopyLane which) {
    SideStream& side = lane(state, which);
    if (state.recorder) {
      const trace::Record record{.kind = trace::Kind::copy,
                                 .what = what,
                                 .unit = name,
                                 .bytes = bytes,
                                 .stream = "offload"};
      side.stream.get().tell_time([at = &state, &side, record](std::int64_t ns) {
        trace::Record done = record;
        done.begin_ns = side.begin_ns;
        done.end_ns = ns;
        at->recorder->add(std::move(done));
      });
    }
    if (state.options.delays) {
      side.stream.get().call([at = &state, &side, which] {
        delay(*at, side, number(which), DelayPoint::after);
        ++side.done;
      });
    }
  }

  static void work_on_host(World::State& state, const HostWork& work, const char* what,
                           const std::string& name) {
    SideStream& side = state.host;
    delay(state, side, kHostNumber, DelayPoint::before);
    const std::int64_t begin_ns = trace::now_ns();
    work(state.host_caller.get());
    if (state.recorder) {
      state.recorder->add({.kind = trace::Kind::host,
                           .what = what,
                           .unit = name,
                           .begin_ns = begin_ns,
                           .end_ns = trace::now_ns(),
                           .stream = "host"});
    }
    delay(state, side, kHostNumber, DelayPoint::after);
    ++side.done;
  }

 private:
  static void delay(const World::State& state, const SideStream& side, std::uint64_t number,
                    DelayPoint point) {
    inject_delay({.delays = state.options.delays, .number = number}, state.rank, side.done, point);
  }
};

MemoryTracker& World::host_memory() noexcept {
  return state_->host_memory;
}

Buffer World::allocate_host(Category category, std::size_t bytes, std::string name) {
  return {*state_->device, state_->host_memory, category,         bytes,
          std::move(name), BufferUse::whole,    BufferPlace::host};
}

Stream World::offload_stream(CopyLane lane) {
  return OffloadCopies::stream_of(*state_, lane);
}

void World::offload(void* to_host, const void* from, std::size_t bytes, const std::string& name,
                    CopyLane lane) {
  const Stream stream = offload_stream(lane);
  OffloadCopies::begin(*state_, lane);
  state_->device->copy_out(to_host, from, bytes, stream);
  OffloadCopies::end(*state_, "offload", bytes, name, lane);
}

void World::reload(void* to, const void* from_host, std::size_t bytes, const std::string& name,
                   CopyLane lane) {
  const Stream stream = offload_stream(lane);
  OffloadCopies::begin(*state_, lane);
  state_->device->copy_in(to, from_host, bytes, stream);
  OffloadCopies::end(*state_, "reload", bytes, name, lane);
}

Stream World::host_stream() {
  State& state = *state_;
  if (!state.host.stream.get()) {
    const std::string name = fmt::format("host r{}", state.rank);
    Device* processor = state.device.get();
    if (processor->kind() == DeviceKind::cuda) {
      if (!state.host_device) {
        state.host_device = make_cpu_device({.threads = state.host_threads, .pool_name = name});
      }
      processor = state.host_device.get();
    }
    state.host_caller = processor->make_compute_stream();
    state.host.stream = state.device->make_host_stream(name);
  }
  return state.host.stream.get();
}

int World::host_threads() const noexcept {
  return state_->host_threads;
}

void World::compute_on_host(HostWork work, const char* what, const std::string& name) {
  host_stream().call([at = state_.get(), work = std::move(work), what, unit = &name] {
    OffloadCopies::work_on_host(*at, work, what, *unit);
  });
}

}  // namespace tessera

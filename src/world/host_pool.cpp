#include "world/host_pool.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "comm/instruments.hpp"
#include "device/stream_state.hpp"
#include "kernels/table.hpp"
#include "world/world_state.hpp"

namespace tessera::world {
namespace {

using State = WorldAccess::State;

SideStream& side_of(State& state, CopyKind kind) {
  return state.copies[static_cast<std::size_t>(kind)];
}

/// The names of a kind of copies: for delays, and for their thread.
struct CopyNames {
  std::uint64_t number;
  const char* stream;
  const char* copy;  // out of the device
};

CopyNames names_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::activations:
      return {comm::kOffloadNumber, "offload", "offload"};
    case CopyKind::states:
      return {comm::kStatesNumber, "states", "offload"};
    case CopyKind::states_in:
      return {comm::kStatesInNumber, "states in", "offload"};
    case CopyKind::snapshots:
      break;
  }
  return {comm::kSnapshotsNumber, "snapshots", "snapshot"};
}

void delay(const State& state, const SideStream& side, std::uint64_t number,
           comm::DelayPoint point) {
  comm::inject_delay({.delays = state.options.testing.delays, .number = number}, state.rank,
                     side.done, point);
}

/// Later work runs before the work of the device in a side stream, ...
void begin_work(State& state, SideStream& side, std::uint64_t number) {
  if (state.options.testing.delays) {
    side.stream.get().call(
        [at = &state, &side, number] { delay(*at, side, number, comm::DelayPoint::before); });
  }
  if (state.recorder) {
    side.stream.get().tell_time([&side](std::int64_t ns) { side.begin_ns = ns; });
  }
}

/// ... and after it.
void end_work(State& state, SideStream& side, std::uint64_t number, const trace::Record& record) {
  if (state.recorder) {
    side.stream.get().tell_time([at = &state, &side, record](std::int64_t ns) {
      trace::Record done = record;
      done.begin_ns = side.begin_ns;
      done.end_ns = ns;
      at->recorder->add(std::move(done));
    });
  }
  if (state.options.testing.delays) {
    side.stream.get().call([at = &state, &side, number] {
      delay(*at, side, number, comm::DelayPoint::after);
      ++side.done;
    });
  }
}

void begin_copy(State& state, CopyKind kind) {
  begin_work(state, side_of(state, kind), names_of(kind).number);
}

void end_copy(State& state, const char* what, std::size_t bytes, const std::string& name,
              CopyKind kind) {
  end_work(
      state, side_of(state, kind), names_of(kind).number,
      {.kind = trace::Kind::copy, .what = what, .unit = name, .bytes = bytes, .stream = "offload"});
}

/// A rank that only counts logs the work enqueued there.
void make_side_stream(State& state, SideStream& side, const char* name) {
  side.stream = state.device->make_side_stream(fmt::format("{} r{}", name, state.rank));
  if (state.work_log && !state.device->computes()) {
    side.stream.get().state()->log_to(state.work_log.get(), state.work_log->add_stream(name));
  }
}

void work_on_host(State& state, const HostWork& work, const char* what, const std::string& name) {
  SideStream& side = state.host;
  delay(state, side, comm::kHostNumber, comm::DelayPoint::before);
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
  delay(state, side, comm::kHostNumber, comm::DelayPoint::after);
  ++side.done;
}

void move_on_host(State& state, void* to, const void* from, std::size_t bytes,
                  const std::string& name) {
  SideStream& side = state.host_copies;
  delay(state, side, comm::kHostCopiesNumber, comm::DelayPoint::before);
  const std::int64_t begin_ns = trace::now_ns();
  std::memcpy(to, from, bytes);
  if (state.recorder) {
    state.recorder->add({.kind = trace::Kind::copy,
                         .what = names_of(CopyKind::snapshots).copy,
                         .unit = name,
                         .bytes = bytes,
                         .begin_ns = begin_ns,
                         .end_ns = trace::now_ns(),
                         .stream = "offload"});
  }
  delay(state, side, comm::kHostCopiesNumber, comm::DelayPoint::after);
  ++side.done;
}

}  // namespace

Stream HostPool::copy_stream(CopyKind kind) const {
  SideStream& side = side_of(state_, kind);
  if (!side.stream.get()) { make_side_stream(state_, side, names_of(kind).stream); }
  return side.stream.get();
}

void HostPool::copy_out(void* to_host, const void* from, std::size_t bytes, const std::string& name,
                        CopyKind kind) const {
  const Stream stream = copy_stream(kind);
  begin_copy(state_, kind);
  state_.device->copy_out(to_host, from, bytes, stream);
  end_copy(state_, names_of(kind).copy, bytes, name, kind);
}

void HostPool::copy_in(void* to, const void* from_host, std::size_t bytes, const std::string& name,
                       CopyKind kind) const {
  const Stream stream = copy_stream(kind);
  begin_copy(state_, kind);
  state_.device->copy_in(to, from_host, bytes, stream);
  end_copy(state_, "reload", bytes, name, kind);
}

Stream HostPool::host_copy_stream() const {
  SideStream& side = state_.host_copies;
  if (!side.stream.get()) {
    side.stream = state_.device->make_host_stream(fmt::format("copies r{}", state_.rank));
  }
  return side.stream.get();
}

void HostPool::copy_on_host(void* to, const void* from, std::size_t bytes,
                            const std::string& name) const {
  host_copy_stream().call(
      [at = &state_, to, from, bytes, unit = &name] { move_on_host(*at, to, from, bytes, *unit); });
}

Stream HostPool::update_stream() const {
  SideStream& side = state_.update;
  if (!side.stream.get()) {
    make_side_stream(state_, side, "update");
    side.stream.get().state()->compute_with({&state_.kernels, 1});
  }
  return side.stream.get();
}

void HostPool::update(const std::function<void(Stream)>& launch, const std::string& name) const {
  const Stream stream = update_stream();
  begin_work(state_, state_.update, comm::kUpdateNumber);
  launch(stream);
  end_work(state_, state_.update, comm::kUpdateNumber,
           {.kind = trace::Kind::host, .what = "update", .unit = name, .stream = "update"});
}

Stream HostPool::compute_stream() const {
  if (!state_.host.stream.get()) {
    const std::string name = fmt::format("host r{}", state_.rank);
    Device* processor = state_.device.get();
    if (processor->kind() == DeviceKind::cuda) {
      if (!state_.host_device) {
        state_.host_device = make_cpu_device({.threads = state_.host_threads, .pool_name = name});
      }
      processor = state_.host_device.get();
    }
    state_.host_caller = processor->make_compute_stream();
    state_.host_caller.get().state()->compute_with({&kernels::cpu_table(), state_.host_threads});
    state_.host.stream = state_.device->make_host_stream(name);
  }
  return state_.host.stream.get();
}

void HostPool::compute(HostWork work, const char* what, const std::string& name) const {
  compute_stream().call([at = &state_, work = std::move(work), what, unit = &name] {
    work_on_host(*at, work, what, *unit);
  });
}

}  // namespace tessera::world

namespace tessera {

MemoryTracker& World::host_memory() noexcept {
  return state_->host_memory;
}

Buffer World::allocate_host(Category category, std::size_t bytes, std::string name) {
  return {*state_->device, state_->host_memory, category,         bytes,
          std::move(name), BufferUse::whole,    BufferPlace::host};
}

int World::host_threads() const noexcept {
  return state_->host_threads;
}

}  // namespace tessera

#include "profile/step_simulation.hpp"

#include <algorithm>

#include "tessera/base/error.hpp"

namespace tessera::profile {
namespace {

using trace::WorkEntry;
using WorkKind = WorkEntry::Kind;

const WorkEntry& entry_of(const SimulatedKind& kind, std::size_t entry) {
  return kind.log->entries()[entry];
}

void begin(SimulatedStream& stream, const Running& running, double now) {
  stream.busy = true;
  stream.running = running;
  stream.running.began = now;
}

}  // namespace

bool SimulatedKind::ended() const {
  const auto idle = [](const SimulatedStream& s) { return !s.busy && s.queue.empty(); };
  return next == log->entries().size() && !host.busy &&
         std::all_of(streams.begin(), streams.end(), idle);
}

StepSimulation::StepSimulation(std::span<const RankWork> ranks, const MachineProfile& profile)
    : profile_{profile} {
  for (const RankWork& rank : ranks) {
    SimulatedKind kind;
    kind.log = rank.log;
    kind.count = rank.count;
    kind.rank = rank.rank;
    kind.phases.resize(rank.log->phases().size());
    kind.streams.resize(rank.log->streams().size());
    kind.marks.resize(rank.log->marks());
    kinds_.push_back(std::move(kind));
  }
}

void StepSimulation::play() {
  const auto ended = [this] {
    return std::all_of(kinds_.begin(), kinds_.end(),
                       [](const SimulatedKind& kind) { return kind.ended(); });
  };
  for (;;) {
    while (progress()) {}
    if (ended()) { return; }
    advance();
  }
}

/// Whether work without duration was done, or any work began.
bool StepSimulation::progress() {
  bool moved = false;
  for (SimulatedKind& kind : kinds_) {
    while (progress_host(kind)) { moved = true; }
    for (SimulatedStream& stream : kind.streams) {
      while (progress_stream(kind, stream)) { moved = true; }
    }
  }
  return moved;
}

bool StepSimulation::progress_host(SimulatedKind& kind) {
  if (kind.host.busy || kind.next == kind.log->entries().size()) { return false; }
  const WorkEntry& entry = entry_of(kind, kind.next);
  if (!kind.enqueued) {
    kind.enqueued = true;
    // Marks and ends of steps exist only in the log; all other entries are really enqueued.
    if (entry.kind != WorkKind::step && profile_.enqueue_seconds > 0) {
      static const std::string what = "enqueue";
      begin(kind.host, {.left = profile_.enqueue_seconds, .what = &what}, now_);
      return true;
    }
  }
  if (entry.kind == WorkKind::host_wait) {
    if (!kind.marks[entry.index]) { return false; }
  } else if (on_host(entry.stream)) {
    if (!execute_inline(kind, kind.next)) { return false; }
  } else {
    kind.streams[static_cast<std::size_t>(entry.stream)].queue.push_back(kind.next);
  }
  ++kind.next;
  kind.enqueued = false;
  return true;
}

bool StepSimulation::execute_inline(SimulatedKind& kind, std::size_t index) {
  const WorkEntry& entry = entry_of(kind, index);
  kind.phase = entry.phase;
  switch (entry.kind) {
    case WorkKind::kernel:
      begin_kernel(kind, kind.host, index);
      return true;
    case WorkKind::wait:
      return kind.marks[entry.index];
    case WorkKind::record:
      kind.marks[entry.index] = true;
      return true;
    case WorkKind::step:
      end_step(kind);
      return true;
    case WorkKind::batch:
    case WorkKind::host_wait:
      break;
  }
  throw ContractError{
      "step_time: a collective is on the compute stream; give it a stream of its own"};
}

bool StepSimulation::progress_stream(SimulatedKind& kind, SimulatedStream& stream) {
  if (stream.busy || stream.arrived || stream.queue.empty()) { return false; }
  const std::size_t index = stream.queue.front();
  const WorkEntry& entry = entry_of(kind, index);
  if (entry.stream == 0) { kind.phase = entry.phase; }
  switch (entry.kind) {
    case WorkKind::wait:
      if (!kind.marks[entry.index]) { return false; }
      break;
    case WorkKind::record:
      kind.marks[entry.index] = true;
      break;
    case WorkKind::step:
      end_step(kind);
      break;
    case WorkKind::kernel:
      begin_kernel(kind, stream, index);
      break;
    case WorkKind::batch: {
      const trace::BatchWork& work = kind.log->batches()[entry.index];
      stream.arrived = true;
      return begin_batches(kind, work);
    }
    case WorkKind::host_wait:
      break;
  }
  stream.queue.pop_front();
  return true;
}

// A communicator's batches are in the same order on all ranks, and one stream drives each
// communicator. Ranks also make communicators in the same order: equal numbers mean the same split
// everywhere.
bool StepSimulation::begin_batches(SimulatedKind& kind, const trace::BatchWork& work) {
  std::vector<SimulatedStream*> meeting;
  std::size_t members = 0;
  for (SimulatedKind& other : kinds_) {
    const std::vector<int>& group = kind.log->groups()[work.group];
    if (!std::ranges::binary_search(group, other.rank)) { continue; }
    ++members;
    for (SimulatedStream& stream : other.streams) {
      if (!stream.arrived) { continue; }
      const WorkEntry& entry = entry_of(other, stream.queue.front());
      if (other.log->batches()[entry.index].group == work.group) { meeting.push_back(&stream); }
    }
  }
  if (meeting.size() < members) { return false; }
  Running running{.moves = true, .what = &work.label};
  for (const trace::CollectiveWork& one : work.entries) {
    const CollectiveSeconds& seconds = seconds_of(kind, one, work.group);
    running.fixed = std::max(running.fixed, seconds.latency);
    running.left += seconds.moving;
    running.level = std::max(running.level, seconds.level);
  }
  for (SimulatedStream* const stream : meeting) {
    stream->arrived = false;
    stream->queue.pop_front();
    begin(*stream, running, now_);
  }
  return true;
}

void StepSimulation::begin_kernel(SimulatedKind& kind, SimulatedStream& at, std::size_t index) {
  const WorkEntry& entry = entry_of(kind, index);
  const trace::KernelWork& work = kind.log->kernels()[entry.index];
  const KernelSeconds& seconds = seconds_of(work);
  kind.flops += work.flops;
  begin(at,
        {.left = seconds.alone,
         .shared = seconds.alone > 0 ? seconds.shared / seconds.alone : 1,
         .computes = entry.stream == 0,
         .memory = seconds.memory,
         .what = &work.name},
        now_);
}

void StepSimulation::end_step(SimulatedKind& kind) const {
  kind.steps.push_back({now_, kind.flops, kind.phases});
}

const KernelSeconds& StepSimulation::seconds_of(const trace::KernelWork& work) {
  const auto [at, missing] = kernels_.try_emplace(
      {work.name,
       {static_cast<double>(work.dtype), work.flops, work.bytes, static_cast<double>(work.sizes[0]),
        static_cast<double>(work.sizes[1]), static_cast<double>(work.sizes[2])}});
  if (missing) { at->second = kernel_seconds(work, profile_); }
  return at->second;
}

const CollectiveSeconds& StepSimulation::seconds_of(const SimulatedKind& kind,
                                                    const trace::CollectiveWork& work,
                                                    std::size_t group) {
  const auto [at, missing] = collectives_.try_emplace({work.name, work.bytes, kind.rank, group});
  if (missing) { at->second = collective_seconds(work, kind.log->groups()[group], profile_); }
  return at->second;
}

}  // namespace tessera::profile

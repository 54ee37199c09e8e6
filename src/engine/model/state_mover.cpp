#include "engine/model/state_mover.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/unit/host_copy.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::engine {
namespace {

constexpr std::int64_t kMostStaged = std::int64_t{1} << 18;  // 1 MiB
constexpr const char* kOfHostPool = "state of the host pool on its way";

/// One of `ranks` equal parts of an array.
View part_of(const View& all, int part, int ranks) {
  const std::int64_t elems = all.elems / ranks;
  return all.slice(part * elems, elems);
}

}  // namespace

StateMover::StateMover(World& world, const Sharding& sharding)
    : world_{world}, sharding_{sharding}, mark_{world.device().make_event()} {
  if (sharding.tensor().size > 1) { along_tensor_.emplace(sharding.along_tensor()); }
}

void StateMover::submit(const Channel& channel, Batch batch) {
  submit_in_order(world_.compute_stream(), channel, std::move(batch), mark_.get());
}

void StateMover::among_replicas(const std::string& unit, const std::vector<MovedArray>& arrays) {
  if (!replicas_) { replicas_.emplace(sharding_.replicas()); }
  const int ranks = replicas_->communicator.size();
  Batch batch{"hand on " + unit};
  for (const MovedArray& array : arrays) {
    if (array.on_host) {
      gather_through_device(array.words);
    } else {
      batch.all_gather(part_of(array.words, replicas_->communicator.rank(), ranks), array.words);
    }
  }
  submit(*replicas_, std::move(batch));
}

void StateMover::along_tensor(const std::vector<MovedArray>& arrays) {
  for (const MovedArray& array : arrays) { broadcast(*along_tensor_, array); }
}

void StateMover::along_pipe(const std::vector<int>& places, const std::vector<MovedArray>& arrays) {
  const Channel sharing = sharding_.along_pipe(places);  // collective, also without arrays
  for (const MovedArray& array : arrays) { broadcast(sharing, array); }
}

void StateMover::whole_parameters(const UnitPlan& unit, const std::vector<View>& segments) {
  Batch batch{"gather " + unit.name};
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const View all = segments[s];
    const Range kept = sharding_.kept(unit.layout.segments()[s]);
    if (all.elems > 0) { batch.all_gather(all.slice(kept.first, kept.elems), all); }
  }
  submit(sharding_.gather(), std::move(batch));
}

/// Broadcasts from the channel's first rank, in parts of one size: only some of its ranks may keep
/// the array in the host pool.
void StateMover::broadcast(const Channel& channel, const MovedArray& array) {
  const bool leads = channel.communicator.rank() == 0;
  const Stream compute = world_.compute_stream();
  for (std::int64_t at = 0; at < array.words.elems; at += kMostStaged) {
    const View some = array.words.slice(at, std::min(kMostStaged, array.words.elems - at));
    const View moved =
        array.on_host ? staging(kMostStaged, DType::fp32, kOfHostPool).slice(0, some.elems) : some;
    if (array.on_host && leads) {
      world_.device().copy_in(moved.data, some.data, some.bytes(), compute);
    }
    Batch batch{"hand on"};
    batch.broadcast(moved, 0);
    submit(channel, std::move(batch));
    if (!array.on_host) { continue; }
    if (!leads) { world_.device().copy_out(some.data, moved.data, some.bytes(), compute); }
    compute.wait();
  }
}

/// Gathers an array of the host pool among replicas: communicators move device memory.
void StateMover::gather_through_device(View all) {
  const int ranks = replicas_->communicator.size();
  const int rank = replicas_->communicator.rank();
  const std::int64_t count = std::max<std::int64_t>(kMostStaged / ranks, 1);
  const std::int64_t end = part_of(all, 0, ranks).elems;
  const Stream compute = world_.compute_stream();
  for (std::int64_t at = 0; at < end; at += count) {
    const std::int64_t some = std::min(count, end - at);
    const View staged = staging(std::max(count * ranks, kMostStaged), DType::fp32, kOfHostPool)
                            .slice(0, some * ranks);
    const View mine = part_of(all, rank, ranks).slice(at, some);
    world_.device().copy_in(part_of(staged, rank, ranks).data, mine.data, mine.bytes(), compute);
    Batch batch{"hand on"};
    batch.all_gather(part_of(staged, rank, ranks), staged);
    submit(*replicas_, std::move(batch));
    for (int other = 0; other < ranks; ++other) {
      const View to = part_of(all, other, ranks).slice(at, some);
      if (other == rank) { continue; }
      world_.device().copy_out(to.data, part_of(staged, other, ranks).data, to.bytes(), compute);
    }
    compute.wait();
  }
}

bool StateMover::joins(const UnitPlan& unit, std::size_t p) const {
  return sharding_.in_stages() || (along_tensor_ && unit.layout.specs()[p].cut);
}

void StateMover::join(const UnitPlan& unit, std::size_t p, ConstView part, std::span<float> whole) {
  const std::vector<TensorPart> parts = parts_of(unit.layout.specs()[p]);
  const View staged = staging(std::ssize(whole), part.dtype, "export of a whole tensor");
  if (sharding_.in_stages() && !stages_) {
    std::vector<int> places(static_cast<std::size_t>(sharding_.pipes()));
    std::iota(places.begin(), places.end(), 0);
    stages_.emplace(sharding_.along_pipe(places));
  }
  if (unit.is_at(sharding_.pipe())) { gather_parts(unit.name, parts, part, staged); }
  if (stages_ && std::ssize(unit.places) < stages_->communicator.size()) {
    Batch batch{"export " + unit.name};
    batch.broadcast(staged, unit.places.front());
    submit(*stages_, std::move(batch));
  }
  HostCopy{world_}.read(whole, staged);
  if (parts.size() == 1) { return; }
  const std::vector<float> in_parts(whole.begin(), whole.end());
  const float* from = in_parts.data();
  for (const TensorPart& one : parts) {
    one.for_each_run({0, one.elems()}, [&](const Range& run, std::int64_t at) {
      std::copy_n(from + at, run.elems, whole.begin() + run.first);
    });
    from += one.elems();
  }
}

/// The parts of all ranks along `tensor`, in rank order; one part if the parameter is not cut.
std::vector<TensorPart> StateMover::parts_of(const ParameterSpec& spec) const {
  if (!spec.cut) { return {TensorPart{spec.shape}}; }
  std::vector<TensorPart> parts;
  for (int rank = 0; rank < sharding_.tensor().size; ++rank) {
    parts.emplace_back(spec.shape, *spec.cut, TensorRank{rank, sharding_.tensor().size});
  }
  return parts;
}

/// Gathers the parts end to end.
void StateMover::gather_parts(const std::string& unit, const std::vector<TensorPart>& parts,
                              ConstView part, View staged) {
  Batch batch{"export " + unit};
  std::int64_t first = 0;
  for (int rank = 0; rank < static_cast<int>(parts.size()); ++rank) {
    const View slot = staged.slice(first, parts[static_cast<std::size_t>(rank)].elems());
    first += slot.elems;
    if (slot.elems == 0) { continue; }
    if (parts.size() == 1 || rank == sharding_.tensor().index) {
      world_.device().copy(slot.data, part.data, part.bytes(), world_.compute_stream());
    }
    if (parts.size() > 1) { batch.broadcast(slot, rank); }
  }
  if (along_tensor_) { submit(*along_tensor_, std::move(batch)); }
}

/// Device memory for data on its way.
View StateMover::staging(std::int64_t elems, DType dtype, const char* what) {
  const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(dtype);
  if (bytes > staging_.bytes()) {
    staging_ = {};
    staging_ = world_.allocate(Category::workspace, bytes, what);
  }
  return {staging_.data(), elems, dtype};
}

}  // namespace tessera::engine

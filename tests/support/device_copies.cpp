#include "support/device_copies.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace tessera::test {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

/// The views of one entry, including a gather's `full` where it is used.
std::vector<ConstView> views_of(const CommOp& op, int rank) {
  return std::visit(
      Overloaded{
          [](const AllGather& o) { return std::vector<ConstView>{o.shard, o.full}; },
          [](const ReduceScatter& o) { return std::vector<ConstView>{o.full, o.shard}; },
          [&](const Gather& o) {
            return rank == o.root ? std::vector<ConstView>{o.part, o.full}
                                  : std::vector<ConstView>{o.part};
          },
          [](const auto& o) { return std::vector<ConstView>{o.data}; },
      },
      op);
}

}  // namespace

DeviceCopies::DeviceCopies(World& world, Batch batch, int rank)
    : world_{world}, original_{std::move(batch)} {
  std::vector<std::pair<std::byte*, std::byte*>> ranges;
  for (const CommOp& op : original_.ops()) {
    for (const ConstView& view : views_of(op, rank)) {
      if (view.data == nullptr) { continue; }
      auto* const begin = static_cast<std::byte*>(const_cast<void*>(view.data));
      ranges.emplace_back(begin, begin + std::max<std::size_t>(view.bytes(), 1));
    }
  }
  std::ranges::sort(ranges);
  std::byte* end = nullptr;
  for (const auto& [first, last] : ranges) {
    if (stretches_.empty() || first >= end) {
      stretches_.push_back({first, 0, {}});
      end = first;
    }
    end = std::max(end, last);
    stretches_.back().bytes = static_cast<std::size_t>(end - stretches_.back().host);
  }
  const Stream stream = world.compute_stream();
  for (Stretch& stretch : stretches_) {
    stretch.device = world.allocate(Category::workspace, stretch.bytes, "copies for a test");
    world.device().copy_in(stretch.device.data(), stretch.host, stretch.bytes, stream);
  }
  stream.wait();
}

DeviceCopies::~DeviceCopies() {
  world_.quiesce();  // before the buffers are freed, even after a failed batch
}

void* DeviceCopies::moved(const void* host) const {
  if (host == nullptr) { return nullptr; }
  const auto* const at = static_cast<const std::byte*>(host);
  for (const Stretch& stretch : stretches_) {
    if (at >= stretch.host && at < stretch.host + stretch.bytes) {
      return static_cast<std::byte*>(stretch.device.data()) + (at - stretch.host);
    }
  }
  return const_cast<void*>(host);  // unused: a gather's `full` on a rank that is not the root
}

Batch DeviceCopies::batch() const {
  const auto view = [&](auto v) {
    v.data = moved(v.data);
    return v;
  };
  Batch batch{std::string{original_.label()}};
  for (const CommOp& op : original_.ops()) {
    std::visit(Overloaded{
                   [&](const AllGather& o) { batch.all_gather(view(o.shard), view(o.full)); },
                   [&](const ReduceScatter& o) {
                     batch.reduce_scatter(view(o.full), view(o.shard), o.op);
                   },
                   [&](const AllReduce& o) { batch.all_reduce(view(o.data), o.op); },
                   [&](const Broadcast& o) { batch.broadcast(view(o.data), o.root); },
                   [&](const Reduce& o) { batch.reduce(view(o.data), o.op, o.root); },
                   [&](const Gather& o) { batch.gather(view(o.part), view(o.full), o.root); },
               },
               op);
  }
  return batch;
}

void DeviceCopies::bring_back() {
  const Stream stream = world_.compute_stream();
  for (Stretch& stretch : stretches_) {
    world_.device().copy_out(stretch.host, stretch.device.data(), stretch.bytes, stream);
  }
  stream.wait();
}

}  // namespace tessera::test

#include "bench/cuda/collectives_on_device.hpp"

#include <string>

#include "tessera/comm/world.hpp"

namespace tessera::bench {
namespace {

constexpr int kRepeats = 10;

/// One rank's buffers on its device, as large as the largest of the collectives needs.
class RankBuffers {
 public:
  RankBuffers(World& world, std::int64_t elems)
      : world_{world},
        elems_{elems},
        whole_{buffer(elems, "whole")},
        shard_{buffer(elems / world.size(), "shard")},
        from_{buffer(2 * elems, "from")},
        to_{buffer(2 * elems, "to")} {}

  void run(Collective collective) {
    const Channel channel = world_.gather_channel();
    for (int i = 0; i < kRepeats; ++i) {
      channel.communicator.submit(batch_of(collective), channel.stream);
    }
    channel.stream.wait();
  }

  /// Reads and writes `bytes` in all, as often as run() does its collective.
  void copy(double bytes) {
    const Stream stream = world_.gather_channel().stream;
    for (int i = 0; i < kRepeats; ++i) {
      world_.device().copy(to_.data(), from_.data(), static_cast<std::size_t>(bytes / 2), stream);
    }
    stream.wait();
  }

 private:
  [[nodiscard]] Buffer buffer(std::int64_t elems, const char* name) {
    const std::size_t bytes = static_cast<std::size_t>(elems) * sizeof(float);
    Buffer made = world_.allocate(Category::workspace, bytes, name);
    const Stream stream = world_.gather_channel().stream;
    world_.device().fill(made.data(), 0x3C, bytes, stream);
    stream.wait();
    return made;
  }

  [[nodiscard]] Batch batch_of(Collective collective) const {
    const View whole{whole_.data(), elems_};
    const View shard{shard_.data(), elems_ / world_.size()};
    Batch batch{"bench"};
    switch (collective) {
      case Collective::all_gather:
        batch.all_gather(shard, whole);
        break;
      case Collective::reduce_scatter:
        batch.reduce_scatter(whole, shard);
        break;
      case Collective::all_reduce:
        batch.all_reduce(whole);
        break;
    }
    return batch;
  }

  World& world_;
  std::int64_t elems_;
  Buffer whole_, shard_, from_, to_;
};

/// Seconds until the last rank has finished `work`, on all ranks begun together.
template <class Work>
double together(World& world, Work work) {
  world.barrier();
  const double begin = now();
  work();
  world.barrier();
  return seconds_since(begin);
}

Comparison measure_on_rank(World& world, Collective collective, const CollectiveOptions& options) {
  const std::int64_t part =
      options.bytes / static_cast<std::int64_t>(sizeof(float)) / options.ranks;
  const std::int64_t elems = part * options.ranks;
  RankBuffers buffers{world, elems};
  const double moved =
      moved_bytes(collective, static_cast<double>(elems) * sizeof(float), options.ranks);
  const double all = moved * options.ranks * kRepeats;
  Comparison result{Work::bytes,
                    {std::string{to_string(collective)}, all, 0.0, {}},
                    {{"device copies", all, 0.0, {}}}};
  for (int round = -1; round < options.rounds; ++round) {
    const double ours = together(world, [&] { buffers.run(collective); });
    const double copy = together(world, [&] { buffers.copy(moved); });
    if (round < 0) { continue; }  // the first round makes what is made once
    result.ours.series.seconds.push_back(ours);
    result.limits[0].series.seconds.push_back(copy);
  }
  return result;
}

}  // namespace

std::vector<Comparison> measure_collectives_on_device(const CollectiveOptions& options) {
  WorldOptions world_options;
  world_options.device = make_cuda_device()->kind();
  std::vector<Comparison> results;
  run_ranks(
      options.ranks,
      [&](World& world) {
        for (const Collective collective : all_collectives()) {
          Comparison result = measure_on_rank(world, collective, options);
          if (world.rank() == 0) { results.push_back(std::move(result)); }
        }
      },
      world_options);
  return results;
}

}  // namespace tessera::bench

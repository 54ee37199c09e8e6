#include "bench/support/collectives.hpp"

#include <cstring>

#include "bench/support/arrays.hpp"
#include "tessera/comm/world.hpp"

namespace tessera::bench {
namespace {

/// One rank's buffers, as large as the largest of the collectives needs.
class RankBuffers {
 public:
  RankBuffers(World& world, std::int64_t elems)
      : world_{world},
        elems_{elems},
        whole_{floats(elems, 1.0F)},
        shard_{floats(elems / world.size(), 1.0F)},
        from_{floats(2 * elems, 1.0F)},
        to_{floats(2 * elems, 0.0F)} {}

  void run(Collective collective) {
    const View whole{whole_.get(), elems_};
    const View shard{shard_.get(), elems_ / world_.size()};
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
    const Channel channel = world_.gather_channel();
    channel.communicator.submit(std::move(batch), channel.stream);
    channel.stream.wait();
  }

  /// Reads and writes `bytes` in all.
  void copy(double bytes) {
    std::memcpy(to_.get(), from_.get(), static_cast<std::size_t>(bytes / 2));
  }

 private:
  World& world_;
  std::int64_t elems_;
  Floats whole_, shard_, from_, to_;
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
  Comparison result{Work::bytes,
                    {std::string{to_string(collective)}, moved * options.ranks, 0.0, {}},
                    {{"copy by as many threads", moved * options.ranks, 0.0, {}}}};
  for (int round = -1; round < options.rounds; ++round) {
    const double ours = together(world, [&] { buffers.run(collective); });
    const double copy = together(world, [&] { buffers.copy(moved); });
    if (round < 0) { continue; }  // the first round wakes the memory
    result.ours.series.seconds.push_back(ours);
    result.limits[0].series.seconds.push_back(copy);
  }
  return result;
}

}  // namespace

std::string_view to_string(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_reduce:
      return "all_reduce";
  }
  return "";
}

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all{Collective::all_gather, Collective::reduce_scatter,
                                           Collective::all_reduce};
  return all;
}

double moved_bytes(Collective collective, double bytes, int ranks) {
  const double part = bytes / ranks;
  switch (collective) {
    case Collective::all_gather:
      return 2 * bytes;
    case Collective::reduce_scatter:
      return bytes + part;
    case Collective::all_reduce:
      return bytes + part + 2 * (bytes - part);
  }
  return 0.0;
}

std::vector<Comparison> measure_collectives(const std::vector<Collective>& collectives,
                                            const CollectiveOptions& options) {
  std::vector<Comparison> results;
  run_ranks(options.ranks, [&](World& world) {
    for (const Collective collective : collectives) {
      Comparison result = measure_on_rank(world, collective, options);
      if (world.rank() == 0) { results.push_back(std::move(result)); }
    }
  });
  return results;
}

}  // namespace tessera::bench

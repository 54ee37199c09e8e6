#include "tools/measure/collectives.hpp"

#include <cstring>

#include "tessera/world/run.hpp"
#include "tools/measure/arrays.hpp"

namespace tessera::bench {
namespace {

class HostBuffers : public CollectiveBuffers {
 public:
  HostBuffers(std::int64_t elems, int ranks)
      : whole_{floats(elems, 1.0F)},
        shard_{floats(elems / ranks, 1.0F)},
        from_{floats(2 * elems, 1.0F)},
        to_{floats(2 * elems, 0.0F)} {}
  [[nodiscard]] float* whole() noexcept override { return whole_.get(); }
  [[nodiscard]] float* shard() noexcept override { return shard_.get(); }
  void copy(double bytes, int repeats) override {
    for (int i = 0; i < repeats; ++i) {
      std::memcpy(to_.get(), from_.get(), static_cast<std::size_t>(bytes / 2));
    }
  }

 private:
  Floats whole_, shard_, from_, to_;
};

void run_collective(World& world, Collective collective, View whole, View shard, int repeats) {
  const Channel channel = world.gather_channel();
  for (int i = 0; i < repeats; ++i) {
    channel.communicator.submit(batch_of(collective, whole, shard), channel.stream);
  }
  channel.stream.wait();
}

/// Seconds from a common start on all ranks until the last has finished `work`.
template <class Work>
double together(World& world, Work work) {
  world.barrier();
  const double begin = now();
  work();
  world.barrier();
  return seconds_since(begin);
}

Comparison measure_on_rank(World& world, Collective collective, const CollectiveOptions& options,
                           const CollectivePlace& place) {
  const std::int64_t part =
      options.bytes / static_cast<std::int64_t>(sizeof(float)) / options.ranks;
  const std::int64_t elems = part * options.ranks;
  const auto buffers = place.make(world, elems);
  const View whole{buffers->whole(), elems};
  const View shard{buffers->shard(), part};
  const double moved =
      moved_bytes(collective, static_cast<double>(elems) * sizeof(float), options.ranks);
  const double all = moved * options.ranks * place.repeats;
  Comparison result{Work::bytes,
                    {std::string{to_string(collective)}, all, 0.0, {}},
                    {{place.limit, all, 0.0, {}}}};
  for (int round = -1; round < options.rounds; ++round) {
    const double ours =
        together(world, [&] { run_collective(world, collective, whole, shard, place.repeats); });
    const double copy = together(world, [&] { buffers->copy(moved, place.repeats); });
    if (round < 0) {
      continue;
    }  // the first round creates what is created once, and touches the memory
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

Batch batch_of(Collective collective, View whole, View shard) {
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

CollectivePlace host_memory() {
  return {.world = {},
          .limit = "copy by as many threads",
          .repeats = 1,
          .make = [](World& world, std::int64_t elems) {
            return std::make_unique<HostBuffers>(elems, world.size());
          }};
}

std::vector<Comparison> measure_collectives(const std::vector<Collective>& collectives,
                                            const CollectiveOptions& options,
                                            const CollectivePlace& place) {
  std::vector<Comparison> results;
  run_ranks(
      options.ranks,
      [&](World& world) {
        for (const Collective collective : collectives) {
          Comparison result = measure_on_rank(world, collective, options, place);
          if (world.rank() == 0) { results.push_back(std::move(result)); }
        }
      },
      place.world);
  return results;
}

}  // namespace tessera::bench

#include "bench/cuda/job_collectives.hpp"

#include <algorithm>

#include "tessera/device/device.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"
#include "tools/measure/collectives.hpp"
#include "tools/measure/timing.hpp"

namespace tessera::bench {
namespace {

/// A rank's buffers for tensors of up to `elems`, registered with NCCL at the next barrier.
struct Tensors {
  Tensors(World& world, std::int64_t elems)
      : whole{world.allocate(Category::gather, static_cast<std::size_t>(elems) * sizeof(float),
                             "whole")},
        shard{world.allocate(Category::gather,
                             static_cast<std::size_t>(elems / world.size()) * sizeof(float),
                             "shard")} {
    const Stream stream = world.gather_channel().stream;
    world.device().fill(whole.data(), 0, whole.bytes(), stream);
    world.device().fill(shard.data(), 0, shard.bytes(), stream);
    stream.wait();
  }
  Buffer whole;
  Buffer shard;
};

double seconds_of(World& world, const Batch& batch, int repeats) {
  const Channel channel = world.gather_channel();
  world.barrier();
  const double begin = now();
  for (int i = 0; i < repeats; ++i) { channel.communicator.submit(batch, channel.stream); }
  channel.stream.wait();
  return world.sum(seconds_since(begin)) / world.size() / repeats;
}

double median_of(World& world, const Batch& batch, const JobOptions& options) {
  Series series;
  for (int round = -1; round < options.rounds; ++round) {
    const double seconds = seconds_of(world, batch, options.repeats);
    if (round >= 0) { series.seconds.push_back(seconds); }  // the first call connects
  }
  return series.median();
}

/// The number of elements near `bytes` for which all ranks have equal shards that start at
/// multiples of 16 bytes.
std::int64_t elems_of(std::int64_t bytes, int ranks) {
  constexpr std::int64_t kAligned = 4;
  const std::int64_t unit = kAligned * ranks;
  return std::max<std::int64_t>(bytes / static_cast<std::int64_t>(sizeof(float)) / unit, 1) * unit;
}

/// The kind of device that this process's rank will use. No other device gets a context.
DeviceKind own_device_kind() {
  const auto devices = std::max(static_cast<int>(cuda_machine().devices.size()), 1);
  return make_cuda_device({.ordinal = launched_rank() % devices})->kind();
}

}  // namespace

double JobCollective::bus_bandwidth() const {
  const double links = (ranks - 1.0) / ranks * (name == "all_reduce" ? 2 : 1);
  return static_cast<double>(bytes) * links / seconds;
}

void measure_job_collectives(const JobOptions& options,
                             const std::function<void(const JobCollective&)>& show) {
  WorldOptions world_options = options.world;
  world_options.device = own_device_kind();
  run(
      [&](World& world) {
        const Tensors tensors{world, elems_of(options.bytes.back(), world.size())};
        for (const Collective collective : all_collectives()) {
          for (const std::int64_t bytes : options.bytes) {
            const std::int64_t elems = elems_of(bytes, world.size());
            const Batch batch = batch_of(collective, {tensors.whole.data(), elems, DType::fp32},
                                         {tensors.shard.data(), elems / world.size(), DType::fp32});
            const JobCollective result{std::string{to_string(collective)}, world.size(),
                                       elems * static_cast<std::int64_t>(sizeof(float)),
                                       median_of(world, batch, options)};
            if (world.rank() == 0) { show(result); }
          }
        }
      },
      world_options);
}

}  // namespace tessera::bench

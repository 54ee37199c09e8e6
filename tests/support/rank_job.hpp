#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "base/environment.hpp"
#include "support/a_gpu.hpp"
#include "support/device_copies.hpp"
#include "support/reduction_check.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test {

/// A kind of communicator and how to run a body on ranks that use it.
struct CommKind {
  std::string name;
  std::function<void(int, const std::function<void(World&)>&, const WorldOptions&)> run;
};

/// The device that the ranks use: CUDA where a module for it is named (tests/cuda).
inline DeviceKind rank_device() {
  return environment("TESSERA_CUDA_MODULE") ? DeviceKind::cuda : DeviceKind::cpu;
}

/// Threads of this process, or, if a launcher started this process, that job's communicator.
inline const std::vector<CommKind>& comm_kinds() {
  static const std::vector<CommKind> kinds = [] {
    const bool cuda = rank_device() == DeviceKind::cuda;
    const bool processes = launched_job(rank_device()).has_value();
    const char* const name = processes ? (cuda ? "nccl" : "mpi") : (cuda ? "local_cuda" : "local");
    return std::vector<CommKind>{
        {name, [processes](int ranks, const auto& body, WorldOptions options) {
           options.device = rank_device();
           return processes ? tessera::run(body, options) : run_ranks(ranks, body, options);
         }}};
  }();
  return kinds;
}

/// Numbers of ranks to try: `wanted`, or the size of the job that this process belongs to.
inline std::vector<int> rank_counts(std::vector<int> wanted) {
  const auto job = launched_job(rank_device());
  return job ? std::vector<int>{job->size} : wanted;
}

/// The order of sums: NCCL chooses its own, its double uses the given order; everything else, and
/// the double by default, adds in rank order.
inline SumOrder sum_order() {
  const bool as_nccl_likes = on_a_gpu() || environment("TESSERA_EMULATED_NCCL_SUMS");
  return as_nccl_likes && launched_job(rank_device()) ? SumOrder::any : SumOrder::ranks;
}

using RankJob = std::tuple<CommKind, int>;

/// "local_3".
inline std::string rank_job_name(const testing::TestParamInfo<RankJob>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
}

/// A test that runs a body on every kind of communicator with several numbers of ranks.
class OnRanks : public testing::TestWithParam<RankJob> {
 protected:
  [[nodiscard]] static int ranks() { return std::get<1>(GetParam()); }
  static void run(const std::function<void(World&)>& body, const WorldOptions& options = {}) {
    std::get<0>(GetParam()).run(ranks(), body, options);
  }
};

/// Submits one batch of host memory over `channel` and waits for it. On a device with separate
/// memory the batch uses copies there, which are then copied back.
inline void complete(World& world, const Channel& channel, Batch batch) {
  if (!world.device().memory()) {
    channel.communicator.submit(std::move(batch), channel.stream);
    return channel.stream.wait();
  }
  DeviceCopies copies{world, batch, channel.communicator.rank()};
  channel.communicator.submit(copies.batch(), channel.stream);
  channel.stream.wait();
  copies.bring_back();
}

/// Declared after a rank's buffers: they outlive submitted work, even if the rank throws.
class QuiesceAtExit {
 public:
  explicit QuiesceAtExit(World& world) noexcept : world_{world} {}
  QuiesceAtExit(const QuiesceAtExit&) = delete;
  QuiesceAtExit& operator=(const QuiesceAtExit&) = delete;
  ~QuiesceAtExit() { world_.quiesce(); }

 private:
  World& world_;
};

}  // namespace tessera::test

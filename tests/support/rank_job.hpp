#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/comm/launch.hpp"
#include "tessera/comm/world.hpp"

namespace tessera::test {

/// A kind of communicator and how to run a body on ranks that use it.
struct CommKind {
  std::string name;
  std::function<void(int, const std::function<void(World&)>&, const WorldOptions&)> run;
};

/// Threads of this process; or, where mpirun has started this process, that job's communicator.
inline const std::vector<CommKind>& comm_kinds() {
  static const std::vector<CommKind> kinds = [] {
    if (!launched_job()) { return std::vector<CommKind>{{"local", run_ranks}}; }
    return std::vector<CommKind>{
        {"mpi", [](int, const auto& body, const WorldOptions& options) { run(body, options); }}};
  }();
  return kinds;
}

/// Numbers of ranks to try: `wanted`, or what the job that this process belongs to has.
inline std::vector<int> rank_counts(std::vector<int> wanted) {
  const auto job = launched_job();
  return job ? std::vector<int>{job->size} : wanted;
}

using RankJob = std::tuple<CommKind, int>;

/// "local_3".
inline std::string rank_job_name(const testing::TestParamInfo<RankJob>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
}

/// A test that runs a body on every kind of communicator at several numbers of ranks.
class OnRanks : public testing::TestWithParam<RankJob> {
 protected:
  [[nodiscard]] static int ranks() { return std::get<1>(GetParam()); }
  static void run(const std::function<void(World&)>& body, const WorldOptions& options = {}) {
    std::get<0>(GetParam()).run(ranks(), body, options);
  }
};

/// Submits one batch over `channel` and waits for it.
inline void complete(const Channel& channel, Batch batch) {
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.wait();
}

/// Declared after a rank's buffers: they outlive what was submitted, also when the rank throws.
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

#include <fmt/format.h>

#include <exception>
#include <thread>

#include "base/process_limits.hpp"
#include "base/resident.hpp"
#include "comm/control/local/local_ranks.hpp"
#include "comm/control/rank_errors.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "world/world_state.hpp"

namespace tessera {
namespace {

constexpr int kMaxRanks = 1024;

/// Ranks that run as threads, and their results.
class LocalJob {
 public:
  LocalJob(int ranks, const std::function<void(World&)>& body, const WorldOptions& options)
      : body_{body},
        options_{options},
        process_{.ranks = ranks, .context_bytes = resident_bytes()},
        ranks_{world::WorldFactory::make_local_ranks(ranks, options)},
        errors_{ranks} {}

  void run() {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(ranks_->size()));
    for (int rank = 0; rank < ranks_->size(); ++rank) {
      try {
        threads.push_back(start_thread("a thread for it", [this, rank] { run_rank(rank); }));
      } catch (const Error&) {
        fail(rank, std::current_exception());
        break;
      }
    }
    for (std::thread& thread : threads) { thread.join(); }
    errors_.rethrow_cause(ranks_->plane(0).names());
  }

 private:
  void run_rank(int rank) noexcept {
    try {
      World world = world::WorldFactory::make_local(ranks_, rank, options_, process_);
      try {
        body_(world);
        ranks_->plane(rank).check_alive();  // a body may have swallowed it
        world::WorldFactory::finish(world);
        ranks_->leave(rank);
      } catch (...) {  // tells the peers before the world's end waits for them
        fail(rank, std::current_exception());
      }
    } catch (...) {  // there is no world
      fail(rank, std::current_exception());
    }
  }

  void fail(int rank, const std::exception_ptr& error) noexcept {
    errors_.add(rank, error);
    comm::abort_with(ranks_->plane(rank), error);
  }

  const std::function<void(World&)>& body_;
  const WorldOptions& options_;
  ProcessStart process_;
  std::shared_ptr<comm::LocalRanks> ranks_;
  comm::RankErrors errors_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(World&)>& body, const WorldOptions& options) {
  if (ranks < 1 || ranks > kMaxRanks) {
    throw ConfigError{
        fmt::format("the number of ranks must be from 1 to {}, but is {}", kMaxRanks, ranks)};
  }
  validate(options);
  LocalJob{ranks, body, options}.run();
}

}  // namespace tessera

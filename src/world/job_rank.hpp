#pragma once

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "comm/job_end.hpp"
#include "comm/rank_errors.hpp"
#include "tessera/world/run.hpp"
#include "world/world_state.hpp"

namespace tessera {

/// A process's rank of a job: what run() does between the start and the end of one, whatever joins
/// the processes. `Group` is how they fail together.
template <class Group>
class JobRank {
 public:
  explicit JobRank(std::shared_ptr<Group> group) : group_{std::move(group)} {}
  JobRank(const JobRank&) = delete;
  JobRank& operator=(const JobRank&) = delete;
  virtual ~JobRank() = default;

  /// Runs `body` on a world of the job's, and ends when all ranks have. What it throws the others
  /// have been told of.
  void run(const std::function<void(World&)>& body) {
    try {
      World world = make_world();
      try {
        body(world);
        group_->check_alive();  // a body may have swallowed it
        WorldFactory::finish(world);
        meet_at_end();
      } catch (...) {  // tell the peers before the world's end waits for them
        fail(std::current_exception());
        throw;
      }
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      fail(error);  // unless it has
      end(error);
    }
  }

 protected:
  [[nodiscard]] const std::shared_ptr<Group>& group() const noexcept { return group_; }
  /// What the group has to tell the others has gone then.
  void leave() noexcept { group_.reset(); }

 private:
  [[nodiscard]] virtual World make_world() = 0;
  /// *Collective.*
  virtual void meet_at_end() = 0;
  /// The process is going to end with `error`, and may keep silent for kCourtesy before.
  virtual void before_end(const std::exception_ptr& /*error*/) {}

  void fail(const std::exception_ptr& error) noexcept {
    const int status = exit_status_of(error);
    try {
      group_->abort(fmt::format("rank {}: {}", group_->rank(), text_of(error)), status);
    } catch (...) { group_->abort("out of memory", status); }
  }

  [[noreturn]] void end(const std::exception_ptr& error) {
    const int rank = group_->rank();
    group_->give_way();
    const bool another_reports = group_->another_reports();
    before_end(error);
    if (another_reports) { std::this_thread::sleep_for(kCourtesy); }
    leave();
    if (another_reports && is_echo(error)) {
      std::rethrow_exception(error);  // its text begins with the rank that failed
    }
    rethrow_with_rank(error, rank);
  }

  std::shared_ptr<Group> group_;
};

}  // namespace tessera

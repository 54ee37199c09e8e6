#pragma once

#include <exception>
#include <functional>

#include "comm/control/control_plane.hpp"
#include "tessera/world/world.hpp"

namespace tessera::world {

/// A process's rank of a job: what run() does between the start and the end, however the processes
/// are joined.
class JobRank {
 public:
  JobRank() = default;
  JobRank(const JobRank&) = delete;
  JobRank& operator=(const JobRank&) = delete;
  virtual ~JobRank() = default;

  /// Runs `body` on a world of the job, and ends when all ranks have. The other ranks hear of any
  /// exception.
  void run(const std::function<void(World&)>& body);

 private:
  [[nodiscard]] virtual comm::ControlPlane& control() noexcept = 0;
  [[nodiscard]] virtual World make_world() = 0;
  /// *Collective.*
  virtual void meet_at_end() = 0;
  /// Ends the control plane: on return its pending messages are sent.
  virtual void leave() noexcept = 0;
  /// The process is going to end with `error`, and may wait up to kCourtesy before that.
  virtual void before_end(const std::exception_ptr& /*error*/) {}

  [[noreturn]] void end(const std::exception_ptr& error);
};

}  // namespace tessera::world

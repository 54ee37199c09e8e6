#pragma once

#include <exception>
#include <functional>

#include "comm/control/control_plane.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// A process's rank of a job: what run() does between the start and the end of one, whatever joins
/// the processes.
class JobRank {
 public:
  JobRank() = default;
  JobRank(const JobRank&) = delete;
  JobRank& operator=(const JobRank&) = delete;
  virtual ~JobRank() = default;

  /// Runs `body` on a world of the job's, and ends when all ranks have. What it throws the others
  /// have been told of.
  void run(const std::function<void(World&)>& body);

 private:
  [[nodiscard]] virtual ControlPlane& control() noexcept = 0;
  [[nodiscard]] virtual World make_world() = 0;
  /// *Collective.*
  virtual void meet_at_end() = 0;
  /// Ends the control plane: what it has to tell the others has left on return.
  virtual void leave() noexcept = 0;
  /// The process is going to end with `error`, and may keep silent for kCourtesy before.
  virtual void before_end(const std::exception_ptr& /*error*/) {}

  [[noreturn]] void end(const std::exception_ptr& error);
};

}  // namespace tessera

#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/profile/step_time.hpp"

namespace tessera::profile {

/// Work that is running on a stream, or on the host.
struct Running {
  double fixed = 0;   ///< seconds that pass whatever else runs
  double left = 0;    ///< seconds of work, at full speed
  double shared = 1;  ///< slowdown when all cores are busy
  bool computes = false;
  bool memory = false;
  bool moves = false;  ///< whether it is a collective
  int level = 0;       ///< level of a collective
  double began = 0;
  const std::string* what = nullptr;
};

/// One stream of one kind of rank.
struct SimulatedStream {
  std::deque<std::size_t> queue;  ///< entries of the log
  bool busy = false;
  bool arrived = false;  ///< waiting at a batch that other ranks have not reached
  Running running;
};

/// What is known at the end of a rank's step.
struct StepEnd {
  double at;
  double flops;
  std::vector<TimeShares> phases;
};

/// One kind of rank in a simulation.
struct SimulatedKind {
  const trace::WorkLog* log = nullptr;
  int count = 1;
  int rank = 0;           ///< its rank in the job
  std::size_t next = 0;   ///< next entry that the host enqueues
  bool enqueued = false;  ///< whether the host has spent the time for it
  SimulatedStream host;
  std::vector<SimulatedStream> streams;
  std::vector<bool> marks;
  int phase = 0;
  double flops = 0;
  std::vector<TimeShares> phases;
  std::vector<StepEnd> steps;

  [[nodiscard]] bool ended() const;
};

/// The state of step_time between two moments at which some work ends.
class StepSimulation {
 public:
  StepSimulation(std::span<const RankWork> ranks, const MachineProfile& profile);
  [[nodiscard]] StepTime run();

 private:
  void play();
  bool progress();
  bool progress_host(SimulatedKind& kind);
  bool execute_inline(SimulatedKind& kind, std::size_t entry);
  bool progress_stream(SimulatedKind& kind, SimulatedStream& stream);
  bool begin_batches(SimulatedKind& kind, const trace::BatchWork& work);
  void begin_kernel(SimulatedKind& kind, SimulatedStream& at, std::size_t entry);
  void end_step(SimulatedKind& kind) const;

  void advance();
  void account(double seconds);
  void account(SimulatedKind& kind, double seconds) const;
  void finish(SimulatedKind& kind, SimulatedStream& stream, const std::string& name);
  [[nodiscard]] double speed(const SimulatedKind& kind, const Running& running) const;
  [[nodiscard]] double threads_at_work() const;
  [[nodiscard]] bool on_host(int stream) const { return profile_.cores > 0 && stream == 0; }
  [[nodiscard]] bool is_first(const SimulatedKind& kind) const { return &kind == &kinds_.front(); }
  const KernelSeconds& seconds_of(const trace::KernelWork& work);
  const CollectiveSeconds& seconds_of(const SimulatedKind& kind, const trace::CollectiveWork& work,
                                      std::size_t group);
  template <class Visit>
  void for_each_running(const Visit& visit);

  const MachineProfile& profile_;
  std::vector<SimulatedKind> kinds_;
  double now_ = 0;
  std::vector<WorkSpan> spans_;
  std::map<std::pair<std::string, std::array<double, 6>>, KernelSeconds> kernels_;
  // Keyed by name, bytes, rank and group.
  std::map<std::tuple<std::string, double, int, std::size_t>, CollectiveSeconds> collectives_;
};

}  // namespace tessera::profile

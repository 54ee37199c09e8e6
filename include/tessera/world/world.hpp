#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/channel.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/tracker.hpp"
#include "tessera/trace/recorder.hpp"
#include "tessera/trace/work_log.hpp"
#include "tessera/world/world_options.hpp"

namespace tessera {

/// Memory that a rank's process held when the rank's run began, as the system counts it (0 where
/// the system does not say): nothing of the run accounts for it.
struct ProcessStart {
  int ranks = 0;                  ///< ranks of this run in this process; 0 for a simulated rank
  std::size_t context_bytes = 0;  ///< resident bytes when the run began, less `mpi_bytes`
  std::size_t mpi_bytes = 0;      ///< resident bytes that the start of MPI added; 0 without MPI, or
                                  ///< where the program started MPI itself
};

/// One rank's view of the job: everything that rank owns hangs on it, and nothing is global, so
/// that many ranks can live in one process as threads.
///
/// Memory:  a Buffer may outlive the world.
///          A model or an ActivationStore that outlives it can only be destroyed: every call throws
///          ContractError.
/// Threads: the rank's own thread, except where said.
class World {
 public:
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// This rank's number in the job, from 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// The number of ranks in the job.
  [[nodiscard]] int size() const noexcept;
  /// The options that the run was started with.
  [[nodiscard]] const WorldOptions& options() const noexcept;
  /// Memory that the rank's process held before the run.
  [[nodiscard]] const ProcessStart& process() const noexcept;
  /// Whether this is a rank that only counts (plan, simulate_rank): memory has addresses that
  /// nobody may touch, and `compute` skips its work.
  [[nodiscard]] bool simulated() const noexcept { return !computes(); }
  /// The device that holds the rank's tensors. It lives as long as the world.
  [[nodiscard]] Device& device() noexcept;
  /// The stream on which the caller's kernels and the optimizer run.
  [[nodiscard]] Stream compute_stream() const noexcept;
  /// The channel of all ranks that parameters are gathered over. It is apart from the one for
  /// gradients, so that a gather never queues behind a reduction.
  [[nodiscard]] Channel gather_channel() noexcept;
  /// The channel of all ranks that gradients are reduced over.
  [[nodiscard]] Channel reduce_channel() noexcept;
  /// *Collective.* The channel of this rank's group: a communicator split off `whole.communicator`
  /// (one of the channels above, or what this has split from one), driven by `whole.stream`. See
  /// Communicator::split for the groups, `name` and errors. The world keeps it, and returns the
  /// same one when the same is asked for again.
  ///
  /// Errors: ContractError for a communicator that is not the world's, which may end before it, and
  ///         for a new one within run_as_graph. Otherwise as Communicator::split.
  [[nodiscard]] Channel split(const Channel& whole, const GroupOf& group_of,
                              const std::string& name);
  /// Runs `work` (passes, a step: what has been run before, so that nothing is made anew) with what
  /// it enqueues on the rank's streams captured and launched as one CUDA graph: the same results,
  /// less time between kernels. See WorkGraph.
  ///
  /// Errors: ConfigError on a CPU, and where ranks are threads that share memory: one graph would
  ///         hold work of another's. Otherwise as WorkGraph::run.
  void run_as_graph(const std::function<void()>& work);
  /// The account of the rank's device memory, with its budget.
  [[nodiscard]] MemoryTracker& memory() noexcept;
  /// The rank's records; null unless WorldOptions::trace.
  [[nodiscard]] trace::Recorder* recorder() noexcept;

  /// The log of the work that the rank enqueues; null unless WorldOptions::log_work.
  [[nodiscard]] trace::WorkLog* work_log() noexcept;

  /// Allocates device memory for the caller (activations, data), which reports then include.
  [[nodiscard]] Buffer allocate(Category category, std::size_t bytes, std::string name,
                                BufferUse use = BufferUse::whole);

  /// The account of the rank's second pool: host memory for what has been moved out of the device.
  /// It is counted apart from the device's and is no part of the budget. On a CPU device it is
  /// memory like the other.
  [[nodiscard]] MemoryTracker& host_memory() noexcept;
  /// Allocates memory of the host pool.
  [[nodiscard]] Buffer allocate_host(Category category, std::size_t bytes, std::string name);
  /// Threads that the host computes with where the optimizer is offloaded, including the caller.
  [[nodiscard]] int host_threads() const noexcept;
  /// Runs `work`, which computes on the device: on the CPU with plain loops, on CUDA by launching
  /// kernels on `compute_stream()`. Skipped on a device that only counts (`meta`).
  template <class Work>
  void compute(Work&& work) {
    if (computes()) { std::forward<Work>(work)(); }
  }
  /// The same, with a description of the work. Where the work is skipped, the description is
  /// written into the log, if there is one, so that the time of a step can be planned.
  template <class Work>
  void compute(const trace::KernelWork& does, Work&& work) {
    if (computes()) {
      std::forward<Work>(work)();
    } else {
      count(does);
    }
  }

  /// *Collective.* The sum over the ranks, added in rank order. Blocks.
  [[nodiscard]] double sum(double value);
  /// *Collective.* Blocks until every rank is here.
  void barrier();
  /// *Collective.* Every rank's text, by rank. Blocks.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& text);

  /// Tells every rank that this one cannot go on; their pending and later calls throw CommError
  /// with `reason`. Any thread.
  void abort(std::string_view reason) noexcept;

  /// Waits until nothing that this rank has submitted on its channels can touch memory any more,
  /// on this rank or on a peer: the owner of communicated buffers calls it in its destructor,
  /// before it frees them. Errors of the streams stay there.
  ///
  /// While an exception unwinds the rank's thread, batches that have not begun are withdrawn first
  /// (the channels are then dead, as the rank is): a rank that fails waits for no peer. Otherwise
  /// they are waited for, by the deadline at the latest. Safe to call again.
  void quiesce() noexcept;

 private:
  friend class WorldFactory;
  friend struct WorldAccess;
  struct State;
  explicit World(std::unique_ptr<State> state);
  [[nodiscard]] bool computes() const noexcept;
  void count(const trace::KernelWork& work);

  std::unique_ptr<State> state_;
};

}  // namespace tessera

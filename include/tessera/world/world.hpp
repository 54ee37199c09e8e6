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

namespace world {
struct WorldAccess;
class WorldFactory;
struct WorldState;
}  // namespace world

/// Memory that a rank's process held when the rank's run began, as the system counts it; 0 if the
/// system does not report it. The run's own accounts do not include it.
struct ProcessStart {
  int ranks = 0;                  ///< Ranks of this run in this process; 0 for a simulated rank.
  std::size_t context_bytes = 0;  ///< Resident bytes when the run began, less `mpi_bytes`.
  std::size_t mpi_bytes = 0;      ///< Resident bytes that the start of MPI added; 0 without MPI, or
                                  ///< if the program started MPI itself.
};

/// One rank's view of the job. It owns the rank's device, streams, communicators and accounts.
/// Nothing is global, so that many ranks can live in one process as threads.
///
/// Memory:  a Buffer may outlive the World. A model or an ActivationStore that outlives it can only
///          be destroyed: calls that need the World throw ContractError.
/// Threads: the rank's own, except where said and within the scopes and steps of a ShardedModel.
class World {
 public:
  /// Ends the rank's streams and communicators; `run_ranks` and `run` do that at the run's end.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Returns this rank's number in the job, from 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// Returns the number of ranks in the job.
  [[nodiscard]] int size() const noexcept;
  /// Returns the options that the run was started with.
  [[nodiscard]] const WorldOptions& options() const noexcept;
  /// Returns the memory that the rank's process held before the run.
  [[nodiscard]] const ProcessStart& process() const noexcept;
  /// Returns whether this is a simulated rank (plan, simulate_rank), which only counts: its memory
  /// has addresses that must not be touched, and `compute` skips its work.
  [[nodiscard]] bool simulated() const noexcept { return !computes(); }
  /// Returns the device that holds the rank's tensors. It lives as long as the World.
  [[nodiscard]] Device& device() noexcept;
  /// Returns the stream on which the caller's kernels and the optimizer run.
  [[nodiscard]] Stream compute_stream() const noexcept;
  /// Returns the channel of all ranks over which parameters are gathered. Gradients have another
  /// channel, so that a gather never queues behind a reduction.
  [[nodiscard]] Channel gather_channel() noexcept;
  /// Returns the channel of all ranks over which gradients are reduced.
  [[nodiscard]] Channel reduce_channel() noexcept;
  /// *Collective.* Returns the channel of this rank's group: a communicator split off
  /// `whole.communicator`, on `whole.stream`. `whole` is the gather or reduce channel, or a result
  /// of this call. Communicator::split describes groups, `name` and errors. The World keeps the
  /// communicator, and returns it again for the same arguments.
  ///
  /// Errors: ContractError for a communicator that is not the World's, since it may end before the
  ///         World, and for a new one within run_as_graph. Otherwise as Communicator::split.
  [[nodiscard]] Channel split(const Channel& whole, const GroupOf& group_of,
                              const std::string& name);
  /// *Collective.* Returns a channel like `split(gather_channel(), ...)`, but with a stream of its
  /// own: its batches neither wait for gathers and reductions nor delay them. The World keeps it,
  /// and returns it again for the same groups and `name`. Errors: as `split`.
  [[nodiscard]] Channel split_beside(const GroupOf& group_of, const std::string& name);
  /// Runs `work`, such as passes and a step, and launches what it enqueues on the rank's streams as
  /// one CUDA graph. The results are the same, with less time between kernels. `work` must have run
  /// once before, so that it allocates nothing now. See WorkGraph.
  ///
  /// Errors: ConfigError on a CPU, and if several ranks are threads that share memory, since one
  ///         graph would hold work of another rank. Otherwise as WorkGraph::run.
  void run_as_graph(const std::function<void()>& work);
  /// Returns the account of the rank's device memory, with its budget.
  [[nodiscard]] MemoryTracker& memory() noexcept;
  /// Returns the rank's records, or null unless WorldOptions::trace is set.
  [[nodiscard]] trace::Recorder* recorder() noexcept;

  /// Returns the log of the work that the rank enqueues, or null unless WorldOptions::log_work is
  /// set.
  [[nodiscard]] trace::WorkLog* work_log() noexcept;

  /// Allocates device memory for the caller (activations, data), which reports then include. Throws
  /// OutOfMemory if the budget or the device has no room.
  [[nodiscard]] Buffer allocate(Category category, std::size_t bytes, std::string name,
                                BufferUse use = BufferUse::whole);

  /// Returns the account of the rank's host pool: host memory for state that is moved off the
  /// device. It is counted separately from device memory, and the budget does not limit it. On a
  /// CPU device both are the same kind of memory.
  [[nodiscard]] MemoryTracker& host_memory() noexcept;
  /// Allocates memory in the host pool, which host_memory() counts. Throws OutOfMemory if the host
  /// has no room.
  [[nodiscard]] Buffer allocate_host(Category category, std::size_t bytes, std::string name);
  /// Returns the number of threads, including the caller, with which the host updates an offloaded
  /// optimizer.
  [[nodiscard]] int host_threads() const noexcept;
  /// Runs `work`, which computes on the device: on a CPU with plain loops, on CUDA by launching
  /// kernels on `compute_stream()`. A simulated rank skips it.
  template <class Work>
  void compute(Work&& work) {
    if (computes()) { std::forward<Work>(work)(); }
  }
  /// Runs `work`, which computes on the device as `does` describes. A simulated rank skips it and
  /// writes the description to its log, if there is one, so that the time of a step can be planned.
  template <class Work>
  void compute(const trace::KernelWork& does, Work&& work) {
    if (computes()) {
      std::forward<Work>(work)();
    } else {
      count(does);
    }
  }

  /// *Collective.* Returns the sum of `value` over the ranks, added in rank order. Blocks.
  [[nodiscard]] double sum(double value);
  /// *Collective.* Blocks until every rank has made this call.
  void barrier();
  /// *Collective.* Returns every rank's `text`, by rank. Blocks.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& text);

  /// Ends the job because this rank cannot go on. Pending and later calls on every rank throw
  /// CommError with `reason`. Any thread may call it.
  void abort(std::string_view reason) noexcept;

  /// Waits until no work that this rank has enqueued on its streams can access memory any more, on
  /// this rank or on a peer. The owner of communicated buffers calls it in its destructor, before
  /// it frees them. Errors of the streams stay in the streams.
  ///
  /// While an exception unwinds the rank's thread, the call first withdraws batches that have not
  /// begun, which ends the channels: a rank that fails does not wait for its peers. Otherwise it
  /// waits for those batches, until the deadline at most. It can be called again.
  void quiesce() noexcept;

 private:
  friend class world::WorldFactory;
  friend struct world::WorldAccess;
  explicit World(std::unique_ptr<world::WorldState> state);
  [[nodiscard]] bool computes() const noexcept;
  void count(const trace::KernelWork& work);

  std::unique_ptr<world::WorldState> state_;
};

}  // namespace tessera

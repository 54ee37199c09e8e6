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

/// What is copied between a rank's two pools. Each has a stream of its own, so that neither waits
/// for the other: updated parameters may be long in coming.
enum class CopyLane : std::uint8_t {
  activations,
  states,  ///< gradients to the host, updated parameters back
};

/// Host computation. It gets a stream of a CPU device on which the CPU's kernels run at once, with
/// the rank's threads.
using HostWork = std::function<void(Stream cpu)>;

/// What the process of a rank held when the rank's run began, as the system counts it (0 where it
/// does not tell): memory that nothing of the run accounts for.
struct ProcessStart {
  int ranks = 0;                  ///< of this run that are in this process; 0 for a simulated rank
  std::size_t context_bytes = 0;  ///< resident when the run was entered, less `mpi_bytes`
  std::size_t mpi_bytes = 0;      ///< resident that MPI's start has added; 0 without MPI, or where
                                  ///< the program had started it itself
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

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const WorldOptions& options() const noexcept;
  [[nodiscard]] const ProcessStart& process() const noexcept;
  /// Whether this is a rank that only counts (plan, simulate_rank): memory has addresses that
  /// nobody may touch, and `compute` skips its work.
  [[nodiscard]] bool simulated() const noexcept { return !computes(); }
  [[nodiscard]] Device& device() noexcept;
  /// Where the caller's kernels and the optimizer run.
  [[nodiscard]] Stream compute_stream() const noexcept;
  /// Parameters come over one channel and gradients leave over another: a gather never queues
  /// behind a reduction.
  [[nodiscard]] Channel gather_channel() noexcept;
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
  /// Whether that is under way: the host must not wait for what it enqueues.
  [[nodiscard]] bool in_graph() const noexcept;

  [[nodiscard]] MemoryTracker& memory() noexcept;
  /// Null unless WorldOptions::trace.
  [[nodiscard]] trace::Recorder* recorder() noexcept;

  /// Null unless WorldOptions::log_work.
  [[nodiscard]] trace::WorkLog* work_log() noexcept;

  /// Memory of the caller's own (activations, data) that reports then include.
  [[nodiscard]] Buffer allocate(Category category, std::size_t bytes, std::string name,
                                BufferUse use = BufferUse::whole);

  /// The rank's second pool: host memory for what has been moved out of the device, counted apart
  /// and no part of the budget. On a CPU device it is memory like the other.
  [[nodiscard]] MemoryTracker& host_memory() noexcept;
  [[nodiscard]] Buffer allocate_host(Category category, std::size_t bytes, std::string name);
  /// Where copies between the pools run, beside computation and collectives: on the CPU a thread of
  /// its own. Made by the first call.
  [[nodiscard]] Stream offload_stream(CopyLane lane = CopyLane::activations);
  /// Enqueue a copy of `bytes` there, from the device to the host pool and back. Recorded as
  /// `name`'s, which outlives the copy.
  void offload(void* to_host, const void* from, std::size_t bytes, const std::string& name,
               CopyLane lane = CopyLane::activations);
  void reload(void* to, const void* from_host, std::size_t bytes, const std::string& name,
              CopyLane lane = CopyLane::activations);
  /// Where the host computes on what lies in its pool, beside all of the above: a thread of its own
  /// on every device, whose events order it (Device::make_host_stream). Made by the first call.
  [[nodiscard]] Stream host_stream();
  /// How many threads it computes with, its own among them.
  [[nodiscard]] int host_threads() const noexcept;
  /// Enqueues `work` there. It does not throw, and waits for nothing. Recorded as a span `what` of
  /// `name`; both outlive it.
  void compute_on_host(HostWork work, const char* what, const std::string& name);

  /// Runs `work`, which computes on the device: on the CPU with plain loops, on CUDA by launching
  /// kernels on `compute_stream()`. Skipped on a device that only counts (`meta`).
  template <class Work>
  void compute(Work&& work) {
    if (computes()) { std::forward<Work>(work)(); }
  }
  /// The same, with what the work does said: where it is skipped it is written into the log, if
  /// there is one, so that the time of a step can be planned.
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

  struct Life;
  /// The library's own: what tells objects that outlive the world that it has ended.
  [[nodiscard]] const std::shared_ptr<Life>& life() const noexcept;

 private:
  friend class WorldFactory;
  friend struct OffloadCopies;
  struct State;
  explicit World(std::unique_ptr<State> state);
  [[nodiscard]] bool computes() const noexcept;
  void count(const trace::KernelWork& work);

  std::unique_ptr<State> state_;
};

}  // namespace tessera

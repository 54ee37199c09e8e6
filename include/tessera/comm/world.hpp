#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/memory/tracker.hpp"
#include "tessera/trace/recorder.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera {

namespace kernels {
struct Table;
}

/// Delays of random length before and after each collective and each copy between the pools, to
/// show races. Test instrument.
struct DelayInjection {
  std::uint64_t seed = 1;
  std::chrono::microseconds longest{300};
};

/// Where a CPU rank's compute stream runs what is enqueued on it.
enum class ComputeStream : std::uint8_t {
  caller,  ///< at once, on the thread that enqueues: plain loops of the caller's are in order
  worker,  ///< later, on a thread of its own, as on a GPU: for trainers whose every computation is
           ///< enqueued. Test instrument: shows events that the caller's thread would hide
};

/// What is copied between a rank's two pools. Each has a stream of its own, so that neither waits
/// for the other: updated parameters may be long in coming.
enum class CopyLane : std::uint8_t {
  activations,
  states,  ///< gradients to the host, updated parameters back
};

/// Host computation. It gets a stream of a CPU device on which the CPU's kernels run at once, with
/// the rank's threads.
using HostWork = std::function<void(Stream cpu)>;

/// How a job's ranks are set up.
struct WorldOptions {
  /// A collective that has not finished after this long ends the job with CommError.
  std::chrono::milliseconds deadline{300'000};
  /// Keep records of allocations, collectives and phases (World::recorder).
  bool trace = false;
  /// With `trace`: of so many steps that have ended, and of the one under way (0: of all), so that
  /// a long run's records do not grow. See trace::Recorder::keep_last.
  int trace_steps = 0;
  /// Keep a log of what is enqueued (World::work_log): of kernels with their seconds on a CPU, of
  /// everything in a simulation.
  bool log_work = false;
  /// Overwrite slots when they are released. Test instrument; changes no result.
  SlotPoison poison = SlotPoison::off;
  std::optional<DelayInjection> delays = {};
  ComputeStream compute_stream = ComputeStream::caller;
  /// Where the ranks' tensors live and their kernels run: cpu or cuda.
  DeviceKind device = DeviceKind::cpu;
  /// Which CUDA device a rank uses, as CUDA counts those that the process may see. Unless given,
  /// ranks that are threads share the devices out in turn (all of them one, where there is one),
  /// and a process takes the one of its local rank.
  std::optional<int> cuda_ordinal = {};
  /// That a rank computes with, its own among them; from 1 to 256. They speed up the library's
  /// kernels (plain loops in World::compute stay on one), change no bit of any result, and sleep
  /// between kernels.
  int threads = 1;
  /// That a rank on a CUDA device computes with on the host (World::compute_on_host), its own among
  /// them; up to 256. They change no bit of any result. 0: its part of the cores that it may use,
  /// each of which is shared out evenly among the ranks of the machine that may use it. On a CPU
  /// leave it at 0: `threads` are those.
  int host_threads = 0;
  /// What a rank may hold at most, the library's memory and what the caller has registered or taken
  /// with World::allocate: an allocation beyond it throws OutOfMemory that says what is held.
  std::optional<std::size_t> budget_bytes = {};
  /// Insist on the same bits in every run of this job on the same machines. All of the library
  /// gives them without being asked, with the deterministic variants of other libraries' kernels,
  /// but for NCCL, which may add in another order in every run: it is then held to its ring.
  /// ConfigError if the environment (NCCL_ALGO, NCCL_TUNER_PLUGIN) asks it for what has no fixed
  /// order.
  bool deterministic = false;
};

/// What the process of a rank held when the rank's run began, as the system counts it (0 where it
/// does not tell): memory that nothing of the run accounts for.
struct ProcessStart {
  int ranks = 0;                  ///< of this run that are in this process; 0 for a simulated rank
  std::size_t context_bytes = 0;  ///< resident when the run was entered, less `mpi_bytes`
  std::size_t mpi_bytes = 0;      ///< resident that MPI's start has added; 0 without MPI, or where
                                  ///< the program had started it itself
};

/// A communicator with the stream that drives it.
struct Channel {
  Communicator& communicator;
  Stream stream;
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

  /// The device's kernels, for code that uses the library's own.
  [[nodiscard]] const kernels::Table& kernels() const noexcept;

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

/// Runs `body` as `ranks` ranks, threads of this process, and returns when all have finished.
///
/// Errors:  if a rank throws, the others are told and leave with CommError; the first cause (not
///          the echoes) is thrown here, its text preceded by "rank r: ": the same type where it is
///          one of the library's, OutOfMemory for std::bad_alloc, else Error. Of several causes the
///          first in time is told, then the others; ranks that fail with one text count as the
///          lowest of them. An aborted job is an error even if no body throws. ConfigError unless
///          1 <= ranks <= 1024 and the options make sense.
/// Memory:  a rank that throws ends its buffers' lives while peers may be reading them: owners of
///          communicated buffers call World::quiesce first (ShardedModel does).
void run_ranks(int ranks, const std::function<void(World&)>& body,
               const WorldOptions& options = {});

/// Runs `body` as this process's rank of the job that mpirun, srun or torchrun has started
/// (launched_job), and returns when all ranks have finished; without a job alone, as the only rank.
/// On the calling thread. Processes with CPUs are joined by MPI, those with CUDA devices by NCCL
/// (docs/nccl.md).
///
/// Errors:  alone, what `body` throws comes out as it is. In a job the others are told and leave,
///          and it comes out as from run_ranks, at once on the (lowest) rank that failed, else as
///          CommError some seconds later if their processes still run then. The caller reports it
///          and leaves: whatever status the process exits with becomes the job's, and ends it. No
///          further run is possible then. A process that leaves with status 0 waits for the others,
///          until the deadline (with NCCL, no process waits for others once its run has ended).
///          ConfigError if the environment names a job that this build cannot join (no MPI or CUDA
///          module; torchrun, on CPUs), or does not say where ranks meet.
/// Threads: a job's runs all on one thread; MPI starts at the first and ends with the process.
void run(const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/stream.hpp"

namespace tessera::trace {
class WorkLog;
}

namespace tessera {

enum class DeviceKind : std::uint8_t { cpu, cuda, meta };

/// "cpu", "cuda", "meta".
[[nodiscard]] std::string_view to_string(DeviceKind kind) noexcept;

/// Deleters are virtual destructors of the states; see src/device.
struct StreamDeleter {
  void operator()(StreamState* state) const noexcept;
};
struct EventDeleter {
  void operator()(EventState* state) const noexcept;
};

/// Owns a stream. Destroying it finishes (or, after an error, skips) what is enqueued.
class OwnedStream {
 public:
  OwnedStream() = default;
  explicit OwnedStream(StreamState* state) noexcept : state_{state} {}
  [[nodiscard]] Stream get() const noexcept { return Stream{state_.get()}; }

 private:
  std::unique_ptr<StreamState, StreamDeleter> state_;
};

/// Owns an event.
class OwnedEvent {
 public:
  OwnedEvent() = default;
  explicit OwnedEvent(EventState* state) noexcept : state_{state} {}
  [[nodiscard]] Event get() const noexcept { return Event{state_.get()}; }

 private:
  std::unique_ptr<EventState, EventDeleter> state_;
};

/// Work of several streams that is launched as one: a CUDA graph.
class WorkGraph {
 public:
  virtual ~WorkGraph() = default;
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  /// Runs `enqueue`, whose work on `origin` and `others` (streams of one device) does not start but
  /// is captured, and launches it on `origin`: after all that had been enqueued on any of these
  /// streams, and before all that will be. The same results as without a graph. Where the work has
  /// the same shape as the last time, the graph is updated, not made again.
  ///
  /// Errors: what `enqueue` throws; then nothing has been launched. ContractError where it waits on
  ///         the host for captured work, which cannot have begun. DeviceError.
  virtual void run(Stream origin, const std::vector<Stream>& others,
                   const std::function<void()>& enqueue) = 0;

 protected:
  WorkGraph() = default;
};

/// A device's memory as its driver counts it, for all processes together.
struct DeviceMemory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};

/// Where tensors live and kernels run.
///
/// Memory:  a World shares its device with what is allocated on it.
///          A Buffer that outlives the World keeps the device alive, and nothing else of the
///          World.
/// Threads: all calls from one thread at a time, except that buffers may be freed from any.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
  /// "cpu", "cuda:0".
  [[nodiscard]] virtual std::string name() const = 0;
  /// False where kernels do nothing (`meta`).
  [[nodiscard]] virtual bool computes() const noexcept = 0;

  /// Bytes that every allocation is aligned to.
  static constexpr std::size_t kAlignment = 128;
  /// `bytes` of memory, aligned to `kAlignment`, contents undefined. OutOfMemory says how much was
  /// asked.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// As `allocate`, for what communicators move data from and to: memory of the kind that they can
  /// use without copies of their own, where there is one.
  [[nodiscard]] virtual void* allocate_communicated(std::size_t bytes) { return allocate(bytes); }
  /// Either's. `bytes`: as they were asked for. What was large is the system's again at once.
  virtual void free(void* data, std::size_t bytes) noexcept = 0;

  /// `bytes` of the host's memory from and to which copies run beside the host's own work: pinned
  /// on CUDA, ordinary on a CPU. As `allocate`.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void free_host(void* data, std::size_t bytes) noexcept = 0;

  /// Nothing where the device's memory is the host's.
  [[nodiscard]] virtual std::optional<DeviceMemory> memory() const { return {}; }

  /// The stream on which the caller's kernels and the optimizer run.
  [[nodiscard]] virtual OwnedStream make_compute_stream() = 0;
  /// A stream that runs beside it: on the CPU a worker thread called `name`.
  [[nodiscard]] virtual OwnedStream make_side_stream(std::string_view name) = 0;
  /// A stream of host work, on a thread of its own called `name`, that is ordered with the device's
  /// streams by the device's events; not by timed ones, nor within a graph (ContractError).
  /// ConfigError where the device cannot wait for the host so.
  [[nodiscard]] virtual OwnedStream make_host_stream(std::string_view name) {
    return make_side_stream(name);
  }
  [[nodiscard]] virtual OwnedEvent make_event() = 0;
  /// An event that also knows when its stream came to it (Event::seconds_since). Recorded outside
  /// of graphs only (ContractError).
  [[nodiscard]] virtual OwnedEvent make_timed_event() = 0;

  /// Enqueue copies of bytes that do not overlap. `copy_in` reads and `copy_out` writes host
  /// memory, which stays valid until the stream has passed. On CUDA `copy_out` waits for the copy
  /// unless that memory is of allocate_host.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  virtual void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) = 0;
  virtual void copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Enqueues setting every byte to `value`.
  virtual void fill(void* data, unsigned char value, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a check that every byte is `value`; the stream ends with ContractError that says
  /// `fault` if not. For test instruments.
  virtual void check_filled(const void* data, unsigned char value, std::size_t bytes,
                            std::string fault, Stream stream) = 0;

  /// ConfigError where the device has none: on a CPU.
  [[nodiscard]] virtual std::unique_ptr<WorkGraph> make_graph();

  /// The calling thread now enqueues for `unit` in `phase`, until the next call. Shown by the
  /// device's profiler, where it has one (NVTX ranges on CUDA).
  virtual void name_range(std::string_view /*phase*/, std::string_view /*unit*/) noexcept {}

 protected:
  Device() = default;
};

struct CpuDeviceOptions {
  static constexpr int kMostThreads = 256;

  /// That kernels on the compute stream use, the stream's own among them; from 1 to kMostThreads.
  /// Results do not depend on it.
  int threads = 1;
  /// What debuggers call the others.
  std::string pool_name = "pool";
};

struct CudaDeviceOptions {
  int ordinal = 0;  ///< as CUDA counts the devices that the process may see
  /// Other devices whose memory this one's kernels read. ConfigError where they cannot.
  std::vector<int> peers = {};
};

/// How many CUDA devices this process may use, and of what kind; what stands in the way if none.
struct CudaMachine {
  std::vector<std::string> devices;    ///< names, by ordinal
  std::string problem;                 ///< empty if there is a device
  std::string module;                  ///< the file of the CUDA module, empty if there is none
  std::vector<std::string> libraries;  ///< "CUDA runtime 13.0", "NCCL 2.28.9", ... of the module
  std::vector<std::string> without;    ///< what the module was built without, and why
};

/// Looks for the CUDA module, and asks it. Never fails: `problem` says what is missing.
[[nodiscard]] CudaMachine cuda_machine();

/// A CUDA device, which ranks that are threads may share: each has a Device of its own. Opens the
/// CUDA module at the first call. Streams run beside the caller; kernels that fail end their
/// stream, and the device is dead.
///
/// Errors: ConfigError, saying what is missing, if this machine or build has no such device.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

/// Counts and does nothing: memory has addresses that nobody may touch, streams are always done,
/// kernels and copies are skipped. It stands for another device's sizes. Tells `log`, if there is
/// one, which phases it is in (name_range). Threads: any, without a log.
[[nodiscard]] std::unique_ptr<Device> make_meta_device(trace::WorkLog* log = nullptr);

/// The host's processor. Every rank has its own. ConfigError if the processor lacks what this build
/// uses, or if the threads are out of range; DeviceError if the system has no thread left.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options = {});

}  // namespace tessera

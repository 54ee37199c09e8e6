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

/// What a device is: the host's processor, a CUDA GPU, or one that only counts.
enum class DeviceKind : std::uint8_t { cpu, cuda, meta };

/// "cpu", "cuda", "meta".
[[nodiscard]] std::string_view to_string(DeviceKind kind) noexcept;

/// Whose work a device begins first, of streams that have some ready.
enum class StreamPriority : std::uint8_t { usual, high };

/// "usual", "high".
[[nodiscard]] std::string_view to_string(StreamPriority priority) noexcept;

/// Deletes a stream's state, whose type only the backends know.
struct StreamDeleter {
  void operator()(StreamState* state) const noexcept;
};
/// Deletes an event's state, whose type only the backends know.
struct EventDeleter {
  void operator()(EventState* state) const noexcept;
};

/// Owns a stream. Move-only. Destroying it finishes (or, after an error, skips) what is enqueued.
class OwnedStream {
 public:
  OwnedStream() = default;
  /// Takes over `state`, for backends.
  explicit OwnedStream(StreamState* state) noexcept : state_{state} {}
  /// The handle of the stream, valid while this object lives.
  [[nodiscard]] Stream get() const noexcept { return Stream{state_.get()}; }

 private:
  std::unique_ptr<StreamState, StreamDeleter> state_;
};

/// Owns an event. Move-only.
class OwnedEvent {
 public:
  OwnedEvent() = default;
  /// Takes over `state`, for backends.
  explicit OwnedEvent(EventState* state) noexcept : state_{state} {}
  /// The handle of the event, valid while this object lives.
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

  /// Runs `enqueue` and captures what it enqueues on `origin` and `others` (streams of one device)
  /// instead of starting it, then launches all of it on `origin`: after everything enqueued on any
  /// of these streams before, and before everything enqueued on them later. The results are those
  /// of a run without a graph. Work of the same shape as the last time updates the graph instead of
  /// building another. On the meta device `enqueue` is run and nothing else happens.
  ///
  /// Errors: whatever `enqueue` throws, with nothing launched; ContractError if it waits on the
  ///         host for captured work, which cannot have begun; DeviceError.
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
/// Memory:  a World shares its device with what is allocated on it. A Buffer that outlives the
///          World keeps the device and the buffer's tracker alive, and nothing else of the World.
/// Errors:  calls that reach the system or the driver throw DeviceError when that fails.
/// Threads: one thread at a time makes calls, except that any thread may free memory.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// What this device is.
  [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
  /// "cpu", "meta", or "cuda:0" with the device's ordinal.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Whether kernels compute; false on `meta`, where they do nothing.
  [[nodiscard]] virtual bool computes() const noexcept = 0;

  /// The alignment of every allocation, in bytes.
  static constexpr std::size_t kAlignment = 128;
  /// Allocates `bytes` of device memory, aligned to `kAlignment`, contents undefined; null for 0
  /// bytes. The caller frees it with `free`. OutOfMemory says how much was asked for.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// Allocates as `allocate` does, for memory that communicators move data from and to: where there
  /// is a kind of memory that they use without copies of their own, it is of that kind.
  [[nodiscard]] virtual void* allocate_communicated(std::size_t bytes) { return allocate(bytes); }
  /// Frees what `allocate` or `allocate_communicated` returned. `bytes` is the size that was asked
  /// for. On a CPU, blocks of 1 MiB or more go back to the system at once.
  virtual void free(void* data, std::size_t bytes) noexcept = 0;

  /// Allocates as `allocate` does, but host memory: copies from and to it run beside the host's own
  /// work. It is pinned on CUDA, and ordinary on a CPU.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  /// Frees what `allocate_host` returned. `bytes` is the size that was asked for.
  virtual void free_host(void* data, std::size_t bytes) noexcept = 0;

  /// The device's memory as its driver counts it; no value on a CPU, whose memory is the host's,
  /// and on `meta`.
  [[nodiscard]] virtual std::optional<DeviceMemory> memory() const { return {}; }

  /// Makes a stream for the caller's kernels and the optimizer; on a CPU one of kind *caller*.
  [[nodiscard]] virtual OwnedStream make_compute_stream() = 0;
  /// Makes a stream that runs beside the compute stream; on a CPU a worker thread called `name`.
  [[nodiscard]] virtual OwnedStream make_side_stream(std::string_view name) = 0;
  /// Makes a stream for a communicator, as make_side_stream does. On a device without priorities
  /// `priority` has no effect.
  [[nodiscard]] virtual OwnedStream make_channel_stream(std::string_view name,
                                                        StreamPriority /*priority*/) {
    return make_side_stream(name);
  }
  /// Makes a stream of host work, on a thread of its own called `name`. The device's events order
  /// it with the device's streams, but timed events and use within a graph are refused
  /// (ContractError). ConfigError if the device cannot wait for the host in this way.
  [[nodiscard]] virtual OwnedStream make_host_stream(std::string_view name) {
    return make_side_stream(name);
  }
  /// Makes an event that stands for nothing yet.
  [[nodiscard]] virtual OwnedEvent make_event() = 0;
  /// Makes an event that also knows when its stream came to it (Event::seconds_since). Recording it
  /// within a graph is a ContractError.
  [[nodiscard]] virtual OwnedEvent make_timed_event() = 0;

  /// Enqueues a copy of `bytes` between two ranges of device memory, which must not overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a copy of `bytes` from host memory, which must stay valid and unchanged until the
  /// stream has passed.
  virtual void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a copy of `bytes` to host memory, which must stay valid until the stream has passed.
  /// On CUDA the call waits for the copy unless that memory comes from allocate_host.
  virtual void copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Enqueues setting each of `bytes` bytes to `value`.
  virtual void fill(void* data, unsigned char value, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a check that each of `bytes` bytes is `value`. If one is not, the stream ends with a
  /// ContractError that says `fault`. For test instruments.
  virtual void check_filled(const void* data, unsigned char value, std::size_t bytes,
                            std::string fault, Stream stream) = 0;

  /// Makes an empty graph. ConfigError if the device has no graphs; a CPU has none.
  [[nodiscard]] virtual std::unique_ptr<WorkGraph> make_graph();

  /// Says that the calling thread enqueues for `unit` in `phase` until the next call. The device's
  /// profiler shows it, where there is one (NVTX ranges on CUDA).
  virtual void name_range(std::string_view /*phase*/, std::string_view /*unit*/) noexcept {}

 protected:
  Device() = default;
};

/// How make_cpu_device makes a device.
struct CpuDeviceOptions {
  /// The most threads that one device may have.
  static constexpr int kMostThreads = 256;

  /// Threads that kernels on the compute stream use, including the caller's own (1 to
  /// kMostThreads). Results do not depend on it.
  int threads = 1;
  /// The name that debuggers show for the other threads.
  std::string pool_name = "pool";
};

/// How make_cuda_device makes a device.
struct CudaDeviceOptions {
  int ordinal = 0;  ///< the device's number among those that CUDA lets the process see
  /// Ordinals of other devices whose memory this one's kernels read. ConfigError if they cannot.
  std::vector<int> peers = {};
};

/// The CUDA devices that this process may use, or why there is none.
struct CudaMachine {
  std::vector<std::string> devices;    ///< by ordinal: its name, and whether it is not usable
  std::string problem;                 ///< why a device, or CUDA at all, cannot be used, or empty
  std::string module;                  ///< the file of the CUDA module; empty if there is none
  std::vector<std::string> libraries;  ///< "CUDA runtime 13.0", "NCCL 2.28.9", ... of the module
  std::vector<std::string> without;    ///< what the module was built without, and why
};

/// Looks for the CUDA module and asks it about the machine. If something is missing it does not
/// throw: `problem` says what, and `devices` is empty if none can be used.
[[nodiscard]] CudaMachine cuda_machine();

/// Makes a CUDA device. Ranks that are threads may share one GPU; each then has a Device of its
/// own. The first call opens the CUDA module. Streams run beside the caller. A kernel that fails
/// ends its stream, and the device is dead.
///
/// Errors: ConfigError that says what is missing if this machine or build has no such device.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

/// Makes a device that only counts, to learn the sizes of a run on another device: memory has
/// addresses that nobody may touch, streams are always done, kernels and copies are skipped. If
/// `log` is not null, the device tells it the phases of name_range, and the log must outlive the
/// device. Threads: any, if there is no log.
[[nodiscard]] std::unique_ptr<Device> make_meta_device(trace::WorkLog* log = nullptr);

/// Makes a device that computes on the host's processor. Every rank has its own. ConfigError if
/// the processor lacks instructions that this build uses, or if `options.threads` is out of range;
/// DeviceError if the system has no thread left.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options = {});

}  // namespace tessera

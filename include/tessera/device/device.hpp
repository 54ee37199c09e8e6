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

/// The kinds of devices.
enum class DeviceKind : std::uint8_t {
  cpu,   ///< the host's processor
  cuda,  ///< a CUDA GPU
  meta,  ///< computes nothing and only counts memory and work
};

/// Returns "cpu", "cuda" or "meta".
[[nodiscard]] std::string_view to_string(DeviceKind kind) noexcept;

/// The order in which a device starts work of streams that have work ready.
enum class StreamPriority : std::uint8_t {
  usual,  ///< the device's default priority
  high,   ///< starts before work of usual streams
};

/// Returns "usual" or "high".
[[nodiscard]] std::string_view to_string(StreamPriority priority) noexcept;

/// Deletes a stream's state, whose type only the backends know.
struct StreamDeleter {
  /// Deletes `state`: finishes, or after an error skips, the stream's work first.
  void operator()(device::StreamState* state) const noexcept;
};
/// Deletes an event's state, whose type only the backends know.
struct EventDeleter {
  /// Deletes `state`.
  void operator()(device::EventState* state) const noexcept;
};

/// Owns a stream. Move-only. Destroying it finishes (or, after an error, skips) what is enqueued.
class OwnedStream {
 public:
  /// Owns nothing; `get` returns an empty handle.
  OwnedStream() = default;
  /// Takes over `state`, for backends.
  explicit OwnedStream(device::StreamState* state) noexcept : state_{state} {}
  /// Returns the handle of the stream, valid while this object lives.
  [[nodiscard]] Stream get() const noexcept { return Stream{state_.get()}; }

 private:
  std::unique_ptr<device::StreamState, StreamDeleter> state_;
};

/// Owns an event. Move-only.
class OwnedEvent {
 public:
  /// Owns nothing; `get` returns an empty handle.
  OwnedEvent() = default;
  /// Takes over `state`, for backends.
  explicit OwnedEvent(device::EventState* state) noexcept : state_{state} {}
  /// Returns the handle of the event, valid while this object lives.
  [[nodiscard]] Event get() const noexcept { return Event{state_.get()}; }

 private:
  std::unique_ptr<device::EventState, EventDeleter> state_;
};

/// Work on several streams that is launched as one unit: a CUDA graph.
class WorkGraph {
 public:
  /// Frees the graph.
  virtual ~WorkGraph() = default;
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  /// Runs `enqueue` and captures what it enqueues on `origin` and `others` (streams of one device)
  /// instead of starting it, then launches all of it on `origin`: after everything that was
  /// enqueued on any of these streams before, and before everything that is enqueued on them later.
  /// The results are those of a run without a graph. Work of the same shape as in the previous call
  /// updates the graph instead of building a new one. The meta device only runs `enqueue`.
  ///
  /// Errors: an exception of `enqueue` is passed on, and nothing is launched. ContractError if
  ///         `enqueue` waits on the host for captured work, since that cannot start. DeviceError.
  virtual void run(Stream origin, const std::vector<Stream>& others,
                   const std::function<void()>& enqueue) = 0;

 protected:
  /// For the classes that implement it.
  WorkGraph() = default;
};

/// A device's memory as its driver counts it, for all processes together.
struct DeviceMemory {
  std::size_t free_bytes = 0;   ///< bytes that no process uses
  std::size_t total_bytes = 0;  ///< bytes of the whole device
};

/// A processor or GPU: tensors live in its memory, and kernels run on its streams.
///
/// Memory:  a World shares its device with what is allocated on it. A Buffer that outlives the
///          World keeps the device and the buffer's tracker alive, and nothing else of the World.
/// Errors:  calls that reach the system or the driver throw DeviceError when that fails.
/// Threads: one thread at a time makes calls, except that any thread may free memory.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Gives the device up. Its streams and events must have been destroyed.
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Returns the kind of this device.
  [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
  /// Returns "cpu", "meta", or "cuda:0" with the device's ordinal.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Returns whether kernels compute: false on `meta`, where they do nothing.
  [[nodiscard]] virtual bool computes() const noexcept = 0;

  /// The alignment of every allocation, in bytes.
  static constexpr std::size_t kAlignment = 128;
  /// Allocates `bytes` of device memory, aligned to `kAlignment`, contents undefined; null for 0
  /// bytes. The caller frees it with `free`. Throws OutOfMemory with the size requested.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// Allocates as `allocate` does, for memory that communicators move data from and to. Where the
  /// communicator can use a kind of memory directly, without copies of its own, the memory is of
  /// that kind.
  [[nodiscard]] virtual void* allocate_communicated(std::size_t bytes) { return allocate(bytes); }
  /// Frees what `allocate` or `allocate_communicated` returned. `bytes` is the size that was
  /// requested. On a CPU, blocks of 1 MiB or more are returned to the system at once.
  virtual void free(void* data, std::size_t bytes) noexcept = 0;

  /// Allocates host memory, under the rules of `allocate`. Copies from and to it do not block the
  /// host. It is pinned on CUDA, and ordinary on a CPU.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  /// Frees what `allocate_host` returned. `bytes` is the size that was requested.
  virtual void free_host(void* data, std::size_t bytes) noexcept = 0;

  /// Returns the device's memory as its driver counts it; no value on a CPU, whose memory is the
  /// host's, and on `meta`.
  [[nodiscard]] virtual std::optional<DeviceMemory> memory() const { return {}; }

  /// Makes a stream for the caller's kernels and the optimizer; on a CPU one of kind *caller*.
  [[nodiscard]] virtual OwnedStream make_compute_stream() = 0;
  /// Makes a stream that runs beside the compute stream; on a CPU a worker thread called `name`.
  [[nodiscard]] virtual OwnedStream make_side_stream(std::string_view name) = 0;
  /// Makes a stream for a communicator that runs beside the compute stream; on a CPU a worker
  /// thread called `name`. On a device without priorities `priority` has no effect.
  [[nodiscard]] virtual OwnedStream make_channel_stream(std::string_view name,
                                                        StreamPriority /*priority*/) {
    return make_side_stream(name);
  }
  /// Makes a stream of host work, on a thread of its own called `name`. Events order it with the
  /// device's streams. Timed events, and use within a graph, are refused with ContractError. Throws
  /// ConfigError if the device cannot wait for the host in this way.
  [[nodiscard]] virtual OwnedStream make_host_stream(std::string_view name) {
    return make_side_stream(name);
  }
  /// Makes an event that has not been recorded.
  [[nodiscard]] virtual OwnedEvent make_event() = 0;
  /// Makes an event that also keeps the time at which its stream reached it (Event::seconds_since).
  /// Recording it within a graph is a ContractError.
  [[nodiscard]] virtual OwnedEvent make_timed_event() = 0;

  /// Enqueues a copy of `bytes` between two ranges of device memory, which must not overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a copy of `bytes` from host memory, which must stay valid and unchanged until the
  /// copy is done.
  virtual void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a copy of `bytes` to host memory, which must stay valid until the copy is done. On
  /// CUDA the call waits for the copy unless that memory comes from allocate_host.
  virtual void copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Enqueues setting each of `bytes` bytes to `value`.
  virtual void fill(void* data, unsigned char value, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a check that each of `bytes` bytes is `value`. If a byte differs, the stream ends
  /// with a ContractError with the text `fault`. Used by test instruments.
  virtual void check_filled(const void* data, unsigned char value, std::size_t bytes,
                            std::string fault, Stream stream) = 0;

  /// Makes an empty graph. Throws ConfigError if the device has no graphs; a CPU has none.
  [[nodiscard]] virtual std::unique_ptr<WorkGraph> make_graph();

  /// Marks what the calling thread enqueues until the next call as work for `unit` in `phase`. On
  /// CUDA it opens an NVTX range, which profilers show; on other devices it does nothing.
  virtual void name_range(std::string_view /*phase*/, std::string_view /*unit*/) noexcept {}

 protected:
  /// For the classes that implement it.
  Device() = default;
};

/// Options of make_cpu_device.
struct CpuDeviceOptions {
  /// The highest value of `threads`.
  static constexpr int kMostThreads = 256;

  /// Threads that kernels on the compute stream use, including the caller's thread (1 to
  /// kMostThreads). Results do not depend on it.
  int threads = 1;
  /// The name that debuggers show for the pool's threads.
  std::string pool_name = "pool";
};

/// Options of make_cuda_device.
struct CudaDeviceOptions {
  int ordinal = 0;  ///< the device's number among the devices visible to the process, from 0
  /// Ordinals of other devices whose memory kernels on this device read. ConfigError if the machine
  /// does not allow it.
  std::vector<int> peers = {};
};

/// The CUDA devices that this process may use, or why it can use none.
struct CudaMachine {
  std::vector<std::string> devices;    ///< names by ordinal, with a remark if one is not usable
  std::string problem;                 ///< why a device, or CUDA as a whole, is unusable; or empty
  std::string module;                  ///< path of the CUDA module; empty if it was not found
  std::vector<std::string> libraries;  ///< the module's: "CUDA runtime 13.0", "NCCL 2.28.9", ...
  std::vector<std::string> without;    ///< features that the module was built without, and why
};

/// Looks for the CUDA module and asks it about the machine. It does not throw if something is
/// missing: `problem` then says what, and `devices` is empty if none can be used.
[[nodiscard]] CudaMachine cuda_machine();

/// Makes a CUDA device. Ranks that are threads may share one GPU; each then has a Device of its
/// own. The first call opens the CUDA module. Streams run beside the caller. A kernel that fails
/// ends its stream, and the device is dead. Throws ConfigError that says what is missing if this
/// machine or build has no such device.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

/// Makes a device that only counts, to learn the sizes of a run on another device. Its memory has
/// addresses that must not be accessed, its streams are always done, and kernels and copies are
/// skipped. If `log` is not null, the device passes the phases of name_range to it, and the log
/// must outlive the device. Without a log any number of threads may use the device.
[[nodiscard]] std::unique_ptr<Device> make_meta_device(trace::WorkLog* log = nullptr);

/// Makes a device that computes on the host's processor. Every rank has its own. Throws ConfigError
/// if the processor lacks instructions that this build uses, or if `options.threads` is out of
/// range, and DeviceError if the system cannot start a thread.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options = {});

}  // namespace tessera

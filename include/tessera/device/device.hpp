#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/device/stream.hpp"

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

/// Where tensors live and kernels run.
///
/// Threads: all calls from one thread at a time, except that buffers may be freed from any.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
  /// "cpu", "cuda:0".
  [[nodiscard]] virtual std::string name() const = 0;
  /// False where kernels do nothing (`meta`).
  [[nodiscard]] virtual bool computes() const noexcept = 0;

  /// `bytes` of memory, 128-byte aligned, contents undefined. OutOfMemory says how much was asked.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// `bytes`: as they were asked for. What was large is the system's again at once.
  virtual void free(void* data, std::size_t bytes) noexcept = 0;

  /// The stream on which the caller's kernels and the optimizer run.
  [[nodiscard]] virtual OwnedStream make_compute_stream() = 0;
  /// A stream that runs beside it: on the CPU a worker thread called `name`.
  [[nodiscard]] virtual OwnedStream make_side_stream(std::string_view name) = 0;
  [[nodiscard]] virtual OwnedEvent make_event() = 0;

  /// Enqueue copies of bytes that do not overlap. `copy_in` reads and `copy_out` writes host
  /// memory, which stays valid until the stream has passed.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  virtual void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) = 0;
  virtual void copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) = 0;
  /// Enqueues setting every byte to `value`.
  virtual void fill(void* data, unsigned char value, std::size_t bytes, Stream stream) = 0;
  /// Enqueues a check that every byte is `value`; the stream ends with ContractError that says
  /// `fault` if not. For test instruments.
  virtual void check_filled(const void* data, unsigned char value, std::size_t bytes,
                            std::string fault, Stream stream) = 0;

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

/// Counts and does nothing: memory has addresses that nobody may touch, streams are always done,
/// kernels and copies are skipped. It stands for another device's sizes. Threads: any.
[[nodiscard]] std::unique_ptr<Device> make_meta_device();

/// The host's processor. Every rank has its own. ConfigError if the processor lacks what this build
/// uses, or if the threads are out of range; DeviceError if the system has no thread left.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options = {});

}  // namespace tessera

#include <fmt/format.h>

#include <atomic>
#include <cstdint>

#include "device/stream_state.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tessera/device/device.hpp"

namespace tessera {
namespace {

// Addresses that no 64-bit processor maps: an access to them fails at once. There is room for 2^61
// bytes; no machine has more.
constexpr std::uintptr_t kFirstAddress = std::uintptr_t{1} << 62U;
constexpr std::uintptr_t kLastAddress = kFirstAddress + (std::uintptr_t{1} << 61U);

/// Stands for the mark of its last recording, if there is a log of marks.
class MetaEvent final : public device::EventState {
 public:
  void wait() override {
    if (log_ != nullptr) { log_->host_wait(mark_); }
  }
  [[nodiscard]] double seconds_since(const device::EventState& /*earlier*/) const override {
    return 0;
  }
  void set(trace::WorkLog& log, std::size_t mark) noexcept {
    log_ = &log;
    mark_ = mark;
  }
  [[nodiscard]] bool is_set() const noexcept { return log_ != nullptr; }
  [[nodiscard]] std::size_t mark() const noexcept { return mark_; }

 private:
  trace::WorkLog* log_ = nullptr;
  std::size_t mark_ = 0;
};

class MetaStream final : public device::StreamState {
 public:
  void record(device::EventState& event) override {
    if (trace::WorkLog* const log = work_log()) {
      of_meta(event).set(*log, log->record(log_number()));
    }
  }
  void wait_for(device::EventState& event) override {
    trace::WorkLog* const log = work_log();
    if (log != nullptr && of_meta(event).is_set()) {
      log->wait(log_number(), of_meta(event).mark());
    }
  }
  void wait() override {
    if (trace::WorkLog* const log = work_log()) { log->host_wait(log->record(log_number())); }
  }
  void rethrow() override {}
  void call(std::function<void()> /*work*/) override {}
  void tell_time(std::function<void(std::int64_t)> /*told*/) override {}
  [[nodiscard]] void* native() noexcept override { return nullptr; }
  [[nodiscard]] bool skips() const noexcept override { return true; }

 private:
  static MetaEvent& of_meta(device::EventState& event) {
    auto* const own = dynamic_cast<MetaEvent*>(&event);
    expects(own != nullptr,
            "a stream of a device that only counts takes only events of its own device");
    return *own;
  }
};

void log_bytes(const char* name, double bytes, Stream stream) {
  trace::WorkLog* const log = stream.state() == nullptr ? nullptr : stream.state()->work_log();
  if (log == nullptr) { return; }
  log->kernel(stream.state()->log_number(),
              {.name = name, .bytes = bytes, .sizes = {static_cast<std::int64_t>(bytes), 0, 0}});
}

class MetaGraph final : public WorkGraph {
 public:
  void run(Stream /*origin*/, const std::vector<Stream>& /*others*/,
           const std::function<void()>& enqueue) override {
    enqueue();
  }
};

class MetaDevice final : public Device {
 public:
  explicit MetaDevice(trace::WorkLog* log) noexcept : log_{log} {}
  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::meta; }
  [[nodiscard]] std::string name() const override { return "meta"; }
  [[nodiscard]] bool computes() const noexcept override { return false; }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    if (bytes == 0) { return nullptr; }
    const std::size_t limit = kLastAddress - kFirstAddress;
    std::uintptr_t at = next_;
    do {
      if (bytes > limit || at > kLastAddress - round_up(bytes, kAlignment)) {
        throw OutOfMemory(
            fmt::format("{} ({} bytes) cannot be counted: the sizes of this model are far beyond "
                        "any machine; check them",
                        format_bytes(bytes), bytes));
      }
    } while (!next_.compare_exchange_weak(at, at + round_up(bytes, kAlignment)));
    return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr): no memory
  }
  void free(void* /*data*/, std::size_t /*bytes*/) noexcept override {}
  [[nodiscard]] void* allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void free_host(void* /*data*/, std::size_t /*bytes*/) noexcept override {}

  [[nodiscard]] OwnedStream make_compute_stream() override { return OwnedStream{new MetaStream}; }
  [[nodiscard]] OwnedStream make_side_stream(std::string_view /*name*/) override {
    return OwnedStream{new MetaStream};
  }
  [[nodiscard]] OwnedEvent make_event() override { return OwnedEvent{new MetaEvent}; }
  [[nodiscard]] OwnedEvent make_timed_event() override { return make_event(); }

  [[nodiscard]] std::unique_ptr<WorkGraph> make_graph() override {
    return std::make_unique<MetaGraph>();
  }

  void copy(void* /*to*/, const void* /*from*/, std::size_t bytes, Stream stream) override {
    log_bytes("copy", 2 * static_cast<double>(bytes), stream);
  }
  void copy_in(void* /*to*/, const void* /*from_host*/, std::size_t bytes, Stream stream) override {
    log_bytes("copy_in", static_cast<double>(bytes), stream);
  }
  void copy_out(void* /*to_host*/, const void* /*from*/, std::size_t bytes,
                Stream stream) override {
    log_bytes("copy_out", static_cast<double>(bytes), stream);
  }
  void fill(void* /*data*/, unsigned char /*value*/, std::size_t bytes, Stream stream) override {
    log_bytes("fill", static_cast<double>(bytes), stream);
  }
  void check_filled(const void* /*data*/, unsigned char /*value*/, std::size_t /*bytes*/,
                    std::string /*fault*/, Stream /*stream*/) override {}

  void name_range(std::string_view phase, std::string_view /*unit*/) noexcept override {
    if (log_ != nullptr) { log_->enter(phase); }
  }

 private:
  trace::WorkLog* log_;
  std::atomic<std::uintptr_t> next_ = kFirstAddress;
};

}  // namespace

std::unique_ptr<Device> make_meta_device(trace::WorkLog* log) {
  return std::make_unique<MetaDevice>(log);
}

}  // namespace tessera

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

constexpr std::size_t kAlignment = 128;
// Addresses that no 64-bit processor maps: whoever touches them is stopped at once. There is room
// for 2^61 bytes; a size beyond that is no machine's.
constexpr std::uintptr_t kFirstAddress = std::uintptr_t{1} << 62U;
constexpr std::uintptr_t kLastAddress = kFirstAddress + (std::uintptr_t{1} << 61U);

class MetaStream final : public StreamState {
 public:
  void record(EventState& /*event*/) override {}
  void wait_for(EventState& /*event*/) override {}
  void wait() override {}
  void rethrow() override {}
  void call(std::function<void()> /*work*/) override {}
  [[nodiscard]] void* native() noexcept override { return nullptr; }
  [[nodiscard]] bool skips() const noexcept override { return true; }
};

class MetaEvent final : public EventState {
 public:
  void wait() override {}
};

class MetaGraph final : public WorkGraph {
 public:
  void run(Stream /*origin*/, const std::vector<Stream>& /*others*/,
           const std::function<void()>& enqueue) override {
    enqueue();
  }
};

class MetaDevice final : public Device {
 public:
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
            fmt::format("cannot count {} ({} bytes): the sizes of this model are far "
                        "beyond any machine; check them",
                        format_bytes(bytes), bytes));
      }
    } while (!next_.compare_exchange_weak(at, at + round_up(bytes, kAlignment)));
    return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr)
  }
  void free(void* /*data*/, std::size_t /*bytes*/) noexcept override {}
  [[nodiscard]] void* allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void free_host(void* /*data*/, std::size_t /*bytes*/) noexcept override {}

  [[nodiscard]] OwnedStream make_compute_stream() override { return OwnedStream{new MetaStream}; }
  [[nodiscard]] OwnedStream make_side_stream(std::string_view /*name*/) override {
    return OwnedStream{new MetaStream};
  }
  [[nodiscard]] OwnedEvent make_event() override { return OwnedEvent{new MetaEvent}; }

  [[nodiscard]] std::unique_ptr<WorkGraph> make_graph() override {
    return std::make_unique<MetaGraph>();
  }

  void copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/, Stream /*stream*/) override {
  }
  void copy_in(void* /*to*/, const void* /*from_host*/, std::size_t /*bytes*/,
               Stream /*stream*/) override {}
  void copy_out(void* /*to_host*/, const void* /*from*/, std::size_t /*bytes*/,
                Stream /*stream*/) override {}
  void fill(void* /*data*/, unsigned char /*value*/, std::size_t /*bytes*/,
            Stream /*stream*/) override {}
  void check_filled(const void* /*data*/, unsigned char /*value*/, std::size_t /*bytes*/,
                    std::string /*fault*/, Stream /*stream*/) override {}

 private:
  std::atomic<std::uintptr_t> next_ = kFirstAddress;
};

}  // namespace

std::unique_ptr<Device> make_meta_device() {
  return std::make_unique<MetaDevice>();
}

}  // namespace tessera

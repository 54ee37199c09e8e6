#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "device/cpu/cpu_event.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/cpu/host_task.hpp"
#include "device/cpu/instructions.hpp"
#include "device/cpu/parallel.hpp"
#include "device/cpu/processor.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tessera/device/device.hpp"

namespace tessera {
namespace {

// The least bytes for which a thread copies or fills.
constexpr std::int64_t kByteGrain = 256 * 1024;

// RAM and swap: what the system could provide with nothing else running.
std::size_t machine_bytes() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) { return std::numeric_limits<std::size_t>::max() / 2; }
  return (info.totalram + info.totalswap) * info.mem_unit;
}

// Memory from this size on is mapped, and returns to the system at once when freed. The C library
// would keep much freed memory: a destroyed model would still count for its process, and the next
// model's ledger would not add up.
constexpr std::size_t kMappedFrom = std::size_t{1} << 20;

// Mappings from this size on use pages of 2 MiB. Training state is read and written from end to
// end, and with pages of 4 KiB address translation costs time throughout; a disk fills scattered
// pages at less than half its rate (measured: docs/benchmarks/checkpoints.md). Such pages lie
// inside the mappings, so they take no extra memory; a system that refuses them changes nothing.
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Maps memory that begins with a huge page, and unmaps the rest around it. Returns MAP_FAILED if
/// there is none.
void* map_on_huge_pages(std::size_t bytes) noexcept {
  constexpr std::size_t kPage = 4096;
  const std::size_t whole = round_up(bytes, kPage);
  void* const mapped = ::mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) { return MAP_FAILED; }
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (kHugePage - reinterpret_cast<std::uintptr_t>(mapped) % kHugePage) % kHugePage;
  if (before > 0) { ::munmap(first, before); }
  if (before < kHugePage) { ::munmap(first + before + whole, kHugePage - before); }
  (void)::madvise(first + before, bytes, MADV_HUGEPAGE);
  return first + before;
}

/// Returns null if there is none.
void* take(std::size_t bytes) noexcept {
  if (bytes < kMappedFrom) {
    return std::aligned_alloc(Device::kAlignment, round_up(bytes, Device::kAlignment));
  }
  void* const data = bytes >= kHugeFrom ? map_on_huge_pages(bytes)
                                        : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void give_back(void* data, std::size_t bytes) noexcept {
  if (bytes < kMappedFrom) { return std::free(data); }
  ::munmap(data, bytes);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : machine_bytes_{machine_bytes()},
        pool_{options.threads > 1
                  ? std::make_unique<device::WorkerPool>(options.threads, options.pool_name)
                  : nullptr} {}

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cpu; }
  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] bool computes() const noexcept override { return true; }

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void free(void* data, std::size_t bytes) noexcept override { give_back(data, bytes); }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void free_host(void* data, std::size_t bytes) noexcept override { free(data, bytes); }

  [[nodiscard]] OwnedStream make_compute_stream() override;
  [[nodiscard]] OwnedStream make_side_stream(std::string_view name) override {
    return OwnedStream{new device::WorkerStream{name}};
  }
  [[nodiscard]] OwnedEvent make_event() override {
    return OwnedEvent{new device::CpuEvent{device::CpuEvent::Kind::plain}};
  }
  [[nodiscard]] OwnedEvent make_timed_event() override {
    return OwnedEvent{new device::CpuEvent{device::CpuEvent::Kind::timed}};
  }

  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override;
  void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) override {
    copy(to, from_host, bytes, stream);
  }
  void copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) override {
    copy(to_host, from, bytes, stream);
  }
  void fill(void* data, unsigned char value, std::size_t bytes, Stream stream) override;
  void check_filled(const void* data, unsigned char value, std::size_t bytes, std::string fault,
                    Stream stream) override;

  /// Null with one thread.
  [[nodiscard]] device::WorkerPool* pool() noexcept { return pool_.get(); }

 private:
  std::size_t machine_bytes_;
  std::unique_ptr<device::WorkerPool> pool_;
};

OwnedStream CpuDevice::make_compute_stream() {
  auto* const stream = new device::CallerStream;
  stream->use(pool());
  return OwnedStream{stream};
}

void* CpuDevice::allocate(std::size_t bytes) {
  if (bytes == 0) { return nullptr; }
  // The system may promise more than it has and kill the process when it is used. Sizes above the
  // whole machine's are rejected here, which also keeps the rounding below from overflowing.
  void* const data = bytes <= machine_bytes_ ? take(bytes) : nullptr;
  if (data == nullptr) {
    throw OutOfMemory(
        fmt::format("{} ({} bytes) cannot be allocated on cpu, where the machine has {}",
                    format_bytes(bytes), bytes, format_bytes(machine_bytes_)));
  }
  return data;
}

void CpuDevice::copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  device::enqueue(stream, [=] {
    device::parallel_for(stream, static_cast<std::int64_t>(bytes), kByteGrain,
                         [&](const device::Chunk& chunk) {
                           std::memcpy(static_cast<std::byte*>(to) + chunk.first,
                                       static_cast<const std::byte*>(from) + chunk.first,
                                       static_cast<std::size_t>(chunk.size()));
                         });
  });
}

void CpuDevice::fill(void* data, unsigned char value, std::size_t bytes, Stream stream) {
  device::enqueue(stream, [=] {
    device::parallel_for(stream, static_cast<std::int64_t>(bytes), kByteGrain,
                         [&](const device::Chunk& chunk) {
                           std::memset(static_cast<std::byte*>(data) + chunk.first, value,
                                       static_cast<std::size_t>(chunk.size()));
                         });
  });
}

void CpuDevice::check_filled(const void* data, unsigned char value, std::size_t bytes,
                             std::string fault, Stream stream) {
  device::enqueue(stream, [=, fault = std::move(fault)] {
    const std::span all{static_cast<const unsigned char*>(data), bytes};
    if (std::ranges::any_of(all, [value](unsigned char byte) { return byte != value; })) {
      throw ContractError(fault);
    }
  });
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  constexpr int most = CpuDeviceOptions::kMostThreads;
  if (options.threads < 1 || options.threads > most) {
    throw ConfigError(
        fmt::format("a device needs 1 to {} threads, but {} were given", most, options.threads));
  }
  device::require_processor(device::processor_features());
  (void)device::instructions();  // refuses a wrong TESSERA_CPU before any work
  return std::make_unique<CpuDevice>(options);
}

void device::lend_threads(Device& device, Stream stream) {
  auto* const cpu = dynamic_cast<CpuDevice*>(&device);
  auto* const state = dynamic_cast<device::CpuStream*>(stream.state());
  expects(cpu != nullptr && state != nullptr, "only a CPU device can lend threads to its streams");
  state->use(cpu->pool());
}

}  // namespace tessera

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "device/cuda/communicated_memory.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_flags.hpp"
#include "device/cuda/cuda_host_stream.hpp"
#include "device/cuda/cuda_look.hpp"
#include "device/cuda/cuda_staging.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/cuda_use.hpp"
#include "device/cuda_module.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"

namespace tessera::cuda {
namespace {

/// Pinned memory that the device has allocated: copies from and to it need no staging.
class PinnedRanges {
 public:
  void add(const void* data, std::size_t bytes) {
    const std::scoped_lock lock{mutex_};
    ranges_[static_cast<const std::byte*>(data)] = bytes;
  }
  void remove(const void* data) {
    const std::scoped_lock lock{mutex_};
    ranges_.erase(static_cast<const std::byte*>(data));
  }
  [[nodiscard]] bool holds(const void* data, std::size_t bytes) const {
    const std::scoped_lock lock{mutex_};
    const auto* const first = static_cast<const std::byte*>(data);
    const auto after = ranges_.upper_bound(first);
    if (after == ranges_.begin()) { return false; }
    const auto& [begin, size] = *std::prev(after);
    return first + bytes <= begin + size;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> ranges_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options) : ordinal_{options.ordinal} {
    const int count = device_count();
    if (ordinal_ < 0 || ordinal_ >= count) {
      throw ConfigError{
          fmt::format("there is no CUDA device {}: this process sees {} (0 to {}); the environment "
                      "variable CUDA_VISIBLE_DEVICES chooses among them",
                      ordinal_, count, count - 1)};
    }
    require_code(ordinal_);
    enter_device(ordinal_);
    for (const int peer : options.peers) { reach(peer); }
    capture_ = std::make_shared<CaptureState>(ordinal_);
    staging_ = std::make_unique<StagingRing>(capture_);
  }

  ~CudaDevice() override {
    if (in_range_) { nvtxRangePop(); }
  }

  [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
  [[nodiscard]] std::string name() const override { return fmt::format("cuda:{}", ordinal_); }
  [[nodiscard]] bool computes() const noexcept override { return true; }

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  [[nodiscard]] void* allocate_communicated(std::size_t bytes) override;
  void free(void* data, std::size_t /*bytes*/) noexcept override {
    if (data == nullptr) { return; }
    (void)cudaSetDevice(ordinal_);
    if (communicated_ && communicated_->free(data)) { return; }
    (void)cudaFree(data);
  }
  void take_communicated_from(std::shared_ptr<CommunicatedMemory> memory) noexcept {
    communicated_ = std::move(memory);
  }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override;
  void free_host(void* data, std::size_t /*bytes*/) noexcept override {
    if (data == nullptr) { return; }
    pinned_.remove(data);
    (void)cudaFreeHost(data);
  }
  [[nodiscard]] std::optional<DeviceMemory> memory() const override {
    use_device(ordinal_);
    DeviceMemory memory;
    check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "cudaMemGetInfo");
    return memory;
  }
  [[nodiscard]] bool is_capturing() const noexcept { return capture_->current() != 0; }
  [[nodiscard]] DeviceUse use() const {
    DeviceUse use = use_of(ordinal_);
    if (communicated_) {
      use.rounding_bytes = communicated_->rounding_bytes();
      use.communicated = communicated_->text();
    }
    return use;
  }

  [[nodiscard]] OwnedStream make_compute_stream() override { return make_stream(); }
  [[nodiscard]] OwnedStream make_side_stream(std::string_view /*name*/) override {
    return make_stream();
  }
  [[nodiscard]] OwnedStream make_channel_stream(std::string_view /*name*/,
                                                StreamPriority priority) override {
    return make_stream(priority);
  }
  [[nodiscard]] OwnedStream make_host_stream(std::string_view name) override {
    use_device(ordinal_);
    return OwnedStream{new CudaHostStream{ordinal_, capture_, clock_, name}};
  }
  [[nodiscard]] OwnedEvent make_event() override {
    use_device(ordinal_);
    return OwnedEvent{new CudaEvent{capture_}};
  }
  [[nodiscard]] OwnedEvent make_timed_event() override {
    use_device(ordinal_);
    return OwnedEvent{new CudaEvent{capture_, EventKind::timed}};
  }

  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    copy_async(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) override {
    if (bytes <= StagingRing::kMostBytes && !pinned_.holds(from_host, bytes)) {
      return staging_->copy_in(to, from_host, bytes, stream);
    }
    copy_async(to, from_host, bytes, cudaMemcpyHostToDevice, stream);
  }
  void copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) override;
  void fill(void* data, unsigned char value, std::size_t bytes, Stream stream) override {
    if (bytes == 0) { return; }
    check(cudaMemsetAsync(data, value, bytes, cuda_stream(stream).open()), "cudaMemsetAsync");
  }
  void check_filled(const void* data, unsigned char value, std::size_t bytes, std::string fault,
                    Stream stream) override;

  [[nodiscard]] std::unique_ptr<WorkGraph> make_graph() override {
    return std::make_unique<CudaGraph>(*capture_);
  }
  void name_range(std::string_view phase, std::string_view unit) noexcept override;

 private:
  void reach(int peer) const;
  [[nodiscard]] OwnedStream make_stream(StreamPriority priority = StreamPriority::usual) {
    use_device(ordinal_);
    return OwnedStream{new CudaStream{ordinal_, capture_, clock_, priority}};
  }
  static void copy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         Stream stream) {
    if (bytes == 0) { return; }
    check(cudaMemcpyAsync(to, from, bytes, kind, cuda_stream(stream).open()), "cudaMemcpyAsync");
  }

  int ordinal_;
  std::shared_ptr<CaptureState> capture_;
  std::shared_ptr<CudaClock> clock_ = std::make_shared<CudaClock>();
  PinnedRanges pinned_;
  std::shared_ptr<CommunicatedMemory> communicated_;
  std::unique_ptr<StagingRing> staging_;
  bool in_range_ = false;
};

void CudaDevice::reach(int peer) const {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, ordinal_, peer), "cudaDeviceCanAccessPeer");
  if (can == 0) {
    throw ConfigError{fmt::format(
        "CUDA device {} cannot read the memory of device {}, which ranks that are threads need: "
        "make the ranks processes (NCCL), or choose one device (CUDA_VISIBLE_DEVICES)",
        ordinal_, peer)};
  }
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status != cudaErrorPeerAccessAlreadyEnabled) { check(status, "cudaDeviceEnablePeerAccess"); }
  (void)cudaGetLastError();
}

void* CudaDevice::allocate(std::size_t bytes) {
  if (bytes == 0) { return nullptr; }
  use_device(ordinal_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    const DeviceMemory now = *memory();
    throw OutOfMemory{fmt::format(
        "{} ({} bytes) cannot be allocated on {}, where {} of {} are free", format_bytes(bytes),
        bytes, name(), format_bytes(now.free_bytes), format_bytes(now.total_bytes))};
  }
  check(status, "cudaMalloc");
  return data;
}

void* CudaDevice::allocate_communicated(std::size_t bytes) {
  if (bytes == 0 || !communicated_) { return allocate(bytes); }
  use_device(ordinal_);
  void* const data = communicated_->allocate(bytes);
  return data == nullptr ? allocate(bytes) : data;
}

void* CudaDevice::allocate_host(std::size_t bytes) {
  if (bytes == 0) { return nullptr; }
  use_device(ordinal_);
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory{fmt::format("{} ({} bytes) of pinned memory cannot be allocated on the host",
                                  format_bytes(bytes), bytes)};
  }
  check(status, "cudaMallocHost");
  pinned_.add(data, bytes);
  return data;
}

void CudaDevice::copy_out(void* to_host, const void* from, std::size_t bytes, Stream stream) {
  copy_async(to_host, from, bytes, cudaMemcpyDeviceToHost, stream);
  if (bytes > 0 && !pinned_.holds(to_host, bytes)) { stream.wait(); }
}

void CudaDevice::check_filled(const void* data, unsigned char value, std::size_t bytes,
                              std::string fault, Stream stream) {
  CudaStream& cuda = cuda_stream(stream);
  // During a capture they cannot be checked yet, however many there are.
  if (cuda.checks().are_many() && !cuda.capturing()) { cuda.wait(); }
  std::uint32_t* const flag = cuda.checks().add(std::move(fault));
  launch_fill_check(static_cast<const unsigned char*>(data), value, bytes, flag, cuda.open());
}

// Marks the calling thread's time line in NVIDIA's profilers; free of cost without one.
void CudaDevice::name_range(std::string_view phase, std::string_view unit) noexcept {
  if (in_range_) { nvtxRangePop(); }
  std::array<char, 128> name{};
  const auto end = fmt::format_to_n(name.data(), name.size() - 1, "{}{}{}", phase,
                                    unit.empty() ? "" : " ", unit);
  *end.out = '\0';
  nvtxRangePushA(name.data());
  in_range_ = true;
}

}  // namespace

void take_communicated_from(std::shared_ptr<CommunicatedMemory> memory, Device& device) {
  dynamic_cast<CudaDevice&>(device).take_communicated_from(std::move(memory));
}

bool is_capturing(const Device& device) {
  return dynamic_cast<const CudaDevice&>(device).is_capturing();
}

}  // namespace tessera::cuda

extern "C" {

const char* tessera_cuda_build() {
  return TESSERA_BUILD_ID;
}

tessera::Device* tessera_cuda_make_device(const tessera::CudaDeviceOptions& options) {
  return new tessera::cuda::CudaDevice{options};
}

void tessera_cuda_use(const tessera::Device& device, tessera::DeviceUse& use) {
  use = dynamic_cast<const tessera::cuda::CudaDevice&>(device).use();
}
}

#include "torch/cuda_stream.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "torch/counted_blocks.hpp"

namespace tessera::torch {

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using Pluggable = ::torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

// The account for allocations while a stream is current. Each rank has its own stream, even if
// ranks that are threads share a device.
class Accounts {
 public:
  void add(void* stream, std::shared_ptr<MemoryTracker> tracker) {
    const std::lock_guard lock{mutex_};
    Account& account = by_stream_[stream];
    account.tracker = std::move(tracker);
    ++account.guards;
  }
  void remove(void* stream) noexcept {
    const std::lock_guard lock{mutex_};
    const auto at = by_stream_.find(stream);
    if (--at->second.guards == 0) { by_stream_.erase(at); }
  }
  [[nodiscard]] std::shared_ptr<MemoryTracker> of(void* stream) const {
    const std::lock_guard lock{mutex_};
    const auto at = by_stream_.find(stream);
    return at != by_stream_.end() ? at->second.tracker : nullptr;
  }

 private:
  struct Account {
    std::shared_ptr<MemoryTracker> tracker;
    int guards = 0;
  };
  mutable std::mutex mutex_;
  std::unordered_map<void*, Account> by_stream_;
};

// One of each in the process, like libtorch's allocator. They are never destroyed: tensors may
// outlive everything else.
struct CudaMemory {
  caching::CUDAAllocator* before = nullptr;  // which provides the memory
  CountedBlocks blocks;
  Accounts accounts;
};

CudaMemory& cuda_memory() {
  static CudaMemory* const memory = new CudaMemory;  // never destroyed
  return *memory;
}

void give_back(void* data) {
  cuda_memory().before->raw_delete(data);
}

// The deleter of all memory. It may also get memory that was allocated before it was installed.
void end_cuda_block(void* data) {
  if (data != nullptr && !cuda_memory().blocks.end(data)) { give_back(data); }
}

// Memory from libtorch's own allocator, counted first. It counts what tensors request: how much
// device memory that takes depends on what was freed before, on all ranks of the process, so
// whether a budget for it holds would be chance.
void* cuda_memory_of(std::size_t bytes, cudaStream_t stream) {
  CudaMemory& memory = cuda_memory();
  std::shared_ptr<MemoryTracker> tracker = memory.accounts.of(stream);
  if (bytes == 0 || !tracker) { return memory.before->raw_alloc_with_stream(bytes, stream); }
  CountedBlock block{std::move(tracker), bytes};
  void* const data = memory.before->raw_alloc_with_stream(bytes, stream);
  block.hold({data, data, &give_back, c10::Device{c10::kCUDA, c10::cuda::current_device()}});
  memory.blocks.put(data, std::move(block));
  return data;
}

// libtorch's own allocator with an account. The base is a complete allocator in every version of
// libtorch; it rejects what is missing here, such as histories and snapshots.
class CountingCudaAllocator final : public Pluggable {
 public:
  explicit CountingCudaAllocator(caching::CUDAAllocator& before)
      : Pluggable{[](std::size_t bytes, int, cudaStream_t stream) {
                    return cuda_memory_of(bytes, stream);
                  },
                  [](void* data, std::size_t, int, cudaStream_t) { end_cuda_block(data); }},
        before_{before} {
    set_reset_fn([&before] { before.emptyCache(); });
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::DeviceIndex device = c10::cuda::current_device();
    void* const data = cuda_memory_of(bytes, c10::cuda::getCurrentCUDAStream(device));
    return {data, data, &end_cuda_block, c10::Device{c10::kCUDA, device}};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &end_cuda_block; }
  void* raw_alloc(std::size_t bytes) override {
    return cuda_memory_of(bytes, c10::cuda::getCurrentCUDAStream());
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    return cuda_memory_of(bytes, stream);
  }
  void raw_delete(void* data) override { end_cuda_block(data); }

  using Pluggable::recordStream;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    // It skips memory with a deleter that is not its own.
    c10::DataPtr own{data.get(), data.get_context(), before_.raw_deleter(), data.device()};
    before_.recordStream(own, stream);
    own.release_context();
  }

  void init(int devices) override { before_.init(devices); }
  bool initialized() override { return before_.initialized(); }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    before_.setMemoryFraction(fraction, device);
  }
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest) override {
    before_.cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* data, std::size_t* bytes) override {
    return before_.getBaseAllocation(data, bytes);
  }
  caching::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return before_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    before_.resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { before_.resetPeakStats(device); }
  void beginAllocateToPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    before_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) override {
    before_.endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, c10::cuda::MempoolId_t pool) override {
    before_.releasePool(device, pool);
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex to) override {
    before_.enablePeerAccess(device, to);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peers) override {
    return before_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peers);
  }

 private:
  caching::CUDAAllocator& before_;
};

void wrap_cuda_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    caching::CUDAAllocator* const before = caching::get();
    cuda_memory().before = before;
    auto* const counting = new CountingCudaAllocator{*before};  // never destroyed
    // Not through changeCurrentAllocator, which is too late once a tensor was made. Older memory
    // returns itself to the allocator that it came from.
    caching::allocator.store(counting);
    c10::SetAllocator(c10::kCUDA, counting, std::numeric_limits<std::uint8_t>::max());
  });
}

// This thread's guards, and its current stream before the first one.
struct OfThread {
  int guards = 0;
  std::optional<c10::cuda::CUDAStream> before;
};
thread_local OfThread of_thread;

}  // namespace

void CudaStream::require() {}

CudaStream::CudaStream(World& world) : stream_{world.compute_stream().native()} {
  const c10::DeviceIndex device = c10::Device{world.device().name()}.index();
  wrap_cuda_allocator();
  cuda_memory().accounts.add(stream_, world.memory().shared_from_this());
  if (of_thread.guards++ == 0) {
    of_thread.before = c10::cuda::getCurrentCUDAStream(device);
    // Parameters and data may still be computed there.
    of_thread.before->synchronize();
    c10::cuda::set_device(device);
  }
  c10::cuda::setCurrentCUDAStream(
      c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream_), device));
}

CudaStream::~CudaStream() {
  cuda_memory().accounts.remove(stream_);
  if (--of_thread.guards > 0) { return; }
  try {
    // Results can then be read on the previous stream.
    c10::cuda::getCurrentCUDAStream(of_thread.before->device_index()).synchronize();
    c10::cuda::setCurrentCUDAStream(*of_thread.before);
  } catch (const std::exception&) {
    // CUDA's errors are sticky: its next call throws this one too.
  }
}

}  // namespace tessera::torch

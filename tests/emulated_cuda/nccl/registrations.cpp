#include "emulated_cuda/nccl/registrations.hpp"

#include <nccl.h>

#include <map>
#include <mutex>
#include <string>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/controls.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/nccl/comm.hpp"

namespace emulated_nccl {
namespace {

// Granularity that a GPU recommends.
constexpr std::size_t kGranularity = std::size_t{2} << 20;
constexpr std::size_t kCrowd = std::size_t{8} << 20;

struct Range {
  const Comm* comm;
  const std::byte* begin;
  std::size_t bytes;
  bool window = false;

  [[nodiscard]] bool holds(const std::byte* data, std::size_t size) const {
    return data >= begin && data + size <= begin + bytes;
  }
};

struct All {
  std::mutex mutex;
  std::map<const void*, void*> allocations;  // with the memory that others took during the call
  std::map<void*, Range> ranges;             // by handle
  std::uintptr_t handles = 0;
  EmulatedNcclCounts counts = {};
};

All& all() {
  static auto* const them = new All;
  return *them;
}

std::size_t granularity() {
  const std::string bytes = setting("TESSERA_EMULATED_NCCL_GRANULARITY");
  return bytes.empty() ? kGranularity : std::stoull(bytes);
}

}  // namespace

bool is_registered(const Comm* comm, const void* data, std::size_t bytes) {
  const std::scoped_lock lock{all().mutex};
  for (const auto& [handle, range] : all().ranges) {
    if (range.comm == comm && range.holds(static_cast<const std::byte*>(data), bytes)) {
      return true;
    }
  }
  return false;
}

bool take_limits(int min_ctas, int max_ctas) {
  const auto given = [](int ctas) { return ctas != NCCL_CONFIG_UNDEF_INT; };
  if ((given(min_ctas) && min_ctas < 1) || (given(max_ctas) && max_ctas < 1)) { return false; }
  if (given(min_ctas) && given(max_ctas) && min_ctas > max_ctas) { return false; }
  if (!given(min_ctas) && !given(max_ctas)) { return true; }
  const std::scoped_lock lock{all().mutex};
  ++all().counts.limited;
  all().counts.min_ctas = given(min_ctas) ? min_ctas : 0;
  all().counts.max_ctas = given(max_ctas) ? max_ctas : 0;
  return true;
}

void count_call(bool registered, std::size_t bytes) {
  const std::scoped_lock lock{all().mutex};
  EmulatedNcclCounts& counts = all().counts;
  ++(registered ? counts.direct_calls : counts.copied_calls);
  counts.copied_large += !registered && bytes > 256 ? 1 : 0;
}

void check_none_registered(const Comm* comm) {
  const std::scoped_lock lock{all().mutex};
  for (const auto& [handle, range] : all().ranges) {
    if (range.comm == comm) {
      emulated_cuda::misuse("a communicator of NCCL's is destroyed with buffers registered");
    }
  }
}

void forget_registered(const Comm* comm) {
  const std::scoped_lock lock{all().mutex};
  all().counts.ended +=
      std::erase_if(all().ranges, [&](const auto& each) { return each.second.comm == comm; });
}

}  // namespace emulated_nccl

using namespace emulated_nccl;

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  const std::string memory = setting("TESSERA_EMULATED_NCCL_MEMORY");
  if (memory == "none") { return ncclUnhandledCudaError; }
  const int device = emulated_cuda::current_device();
  *data = emulated_cuda::allocate_device(device, bytes, granularity());
  if (*data == nullptr) { return ncclUnhandledCudaError; }
  void* const crowd =
      memory == "crowded" ? emulated_cuda::allocate_device(device, kCrowd) : nullptr;
  const std::scoped_lock lock{all().mutex};
  all().allocations.emplace(*data, crowd);
  ++all().counts.allocated;
  return ncclSuccess;
}

// Does not wait: work still enqueued finds the memory freed.
ncclResult_t ncclMemFree(void* data) {
  {
    const std::scoped_lock lock{all().mutex};
    const auto found = all().allocations.find(data);
    if (found == all().allocations.end()) { return ncclInvalidArgument; }
    if (found->second != nullptr) { (void)emulated_cuda::free_device(found->second); }
    all().allocations.erase(found);
    for (const auto& [handle, range] : all().ranges) {
      if (range.begin == data) { emulated_cuda::misuse("memory is freed that is registered"); }
    }
    ++all().counts.freed;
  }
  return emulated_cuda::free_device(data) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, size_t bytes, void** given) {
  const std::shared_ptr<Comm> comm = comm_of(handle);
  *given = nullptr;
  if (setting("TESSERA_EMULATED_NCCL_REGISTER") == "declines") { return ncclSuccess; }
  const std::string at = setting("TESSERA_EMULATED_NCCL_REGISTER_FAILS_AT");
  const std::scoped_lock lock{all().mutex};
  EmulatedNcclCounts& counts = all().counts;
  if (!comm->started() || !all().allocations.contains(data)) { return ncclInvalidUsage; }
  if (!at.empty() && counts.registered >= std::stoull(at)) { return ncclSystemError; }
  if (!emulated_cuda::is_allocated(data, bytes)) { return ncclInvalidArgument; }
  *given = reinterpret_cast<void*>(++all().handles);
  all().ranges.emplace(*given, Range{comm.get(), static_cast<const std::byte*>(data), bytes});
  ++counts.registered;
  return ncclSuccess;
}

// NCCL accepts only memory of ncclMemAlloc for symmetric windows.
ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* data, size_t bytes,
                                    ncclWindow_t* window, int flags) {
  const std::shared_ptr<Comm> comm = comm_of(handle);
  *window = nullptr;
  if (setting("TESSERA_EMULATED_NCCL_REGISTER") == "declines") { return ncclSuccess; }
  const std::string at = setting("TESSERA_EMULATED_NCCL_REGISTER_FAILS_AT");
  {
    const std::scoped_lock lock{all().mutex};
    if (!comm->started() || flags != NCCL_WIN_COLL_SYMMETRIC) { return ncclInvalidUsage; }
    if (!all().allocations.contains(data)) {
      emulated_cuda::misuse("a symmetric window of memory that is not of ncclMemAlloc");
    }
    if (!at.empty() && all().counts.registered >= std::stoull(at)) { return ncclSystemError; }
    if (!emulated_cuda::is_allocated(data, bytes)) { return ncclInvalidArgument; }
    for (const auto& [other, range] : all().ranges) {
      if (range.comm == comm.get() && range.begin == data) {
        emulated_cuda::misuse("memory is registered twice with a communicator of NCCL's");
      }
    }
  }
  comm->register_window({bytes, flags}, [comm = comm.get(), data, bytes, window] {
    const std::scoped_lock lock{all().mutex};
    *window = reinterpret_cast<ncclWindow_t>(++all().handles);
    all().ranges.emplace(*window, Range{comm, static_cast<const std::byte*>(data), bytes, true});
    ++all().counts.registered;
    ++all().counts.windows;
  });
  return ncclInProgress;
}

namespace {

ncclResult_t deregister(const Comm& comm, void* given, bool window) {
  if (comm.busy()) {
    emulated_cuda::misuse("memory is deregistered that a call of NCCL's may be using");
  }
  const std::scoped_lock lock{all().mutex};
  const auto found = all().ranges.find(given);
  if (found == all().ranges.end() || found->second.comm != &comm) { return ncclInvalidUsage; }
  if (found->second.window != window) {
    emulated_cuda::misuse("a window is deregistered as a buffer, or a buffer as a window");
  }
  all().ranges.erase(found);
  ++all().counts.deregistered;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  return deregister(*comm_of(handle), window, /*window=*/true);
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* given) {
  return deregister(*comm_of(handle), given, /*window=*/false);
}

void emulated_nccl_counts(EmulatedNcclCounts* counts) {
  const std::scoped_lock lock{all().mutex};
  *counts = all().counts;
}

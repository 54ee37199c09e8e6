#include "comm/nccl/nccl_memory.hpp"

#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/environment.hpp"
#include "comm/control/tcp/frame.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"

// Missing from libraries before 2.19: null there.
extern "C" {
[[gnu::weak]] ncclResult_t ncclMemAlloc(void** data, size_t bytes);
[[gnu::weak]] ncclResult_t ncclMemFree(void* data);
}

namespace tessera::comm::nccl {
namespace {

constexpr const char* kVariable = "TESSERA_NCCL_REGISTER";
// The most rounding of one arena; of large arenas an eighth. Libraries that reserve for multicast
// round up to 512 MiB.
constexpr std::size_t kSmallRounding = std::size_t{4} << 20;
constexpr int kFirstVersion = NCCL_VERSION(2, 19, 0);

/// The bytes of the device that the allocation at `data` takes; empty if the driver does not say.
/// The device's free memory would not show it: other processes may change it at the same time.
std::optional<std::size_t> taken_bytes(void* data) {
  void* const function = cuda::driver_function("cuMemGetAddressRange");
  if (function == nullptr) { return {}; }
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  const CUresult result = reinterpret_cast<PFN_cuMemGetAddressRange_v3020>(function)(
      &begin, &bytes, reinterpret_cast<std::uintptr_t>(data));
  if (result != CUDA_SUCCESS) { return {}; }
  return bytes;
}

/// Why an arena of `bytes` must not use NCCL memory that takes `taken` bytes; empty if it may.
std::string why_not_taken(std::size_t bytes, std::optional<std::size_t> taken) {
  if (!taken) {
    return fmt::format("the driver does not say how much of the device ncclMemAlloc of {} takes",
                       format_bytes(bytes));
  }
  if (*taken - std::min(bytes, *taken) <= std::max(kSmallRounding, bytes / 8)) { return {}; }
  return fmt::format("ncclMemAlloc of {} takes {} of the device, which is too much",
                     format_bytes(bytes), format_bytes(*taken));
}

std::string arenas_text(std::size_t count, std::size_t bytes) {
  return fmt::format("{} arena{} ({})", count, count == 1 ? "" : "s", format_bytes(bytes));
}

}  // namespace

std::string registration_problem() {
  const std::string asked = environment(kVariable).value_or("1");
  if (asked != "0" && asked != "1") {
    throw ConfigError{
        fmt::format("the environment variable {} is \"{}\": 0 leaves arenas unregistered with "
                    "NCCL, 1 registers "
                    "them",
                    kVariable, asked)};
  }
  if (asked == "0") { return fmt::format("{}=0", kVariable); }
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version < kFirstVersion ||
      &ncclMemAlloc == nullptr) {
    return fmt::format("NCCL {} cannot register them, 2.19 is the first that can",
                       device::version_text(version));
  }
  return {};
}

std::string registration_text() {
  const std::string reason = registration_problem();
  return reason.empty() ? "registers arenas" : "arenas are not registered: " + reason;
}

NcclMemory::NcclMemory(Registration how) : how_{how}, off_{registration_problem()} {}

void NcclMemory::add(NcclComm& comm) {
  const std::scoped_lock lock{mutex_};
  comms_.push_back(&comm);
}

void NcclMemory::remove(NcclComm& comm) noexcept {
  const std::scoped_lock lock{mutex_};
  std::erase(comms_, &comm);
  for (auto& [data, arena] : arenas_) {
    const auto found = arena.handles.find(&comm);
    if (found == arena.handles.end()) { continue; }
    if (found->second != nullptr) { comm.deregister(found->second, how_); }
    arena.handles.erase(found);
  }
}

void* NcclMemory::allocate(std::size_t bytes) {
  const std::scoped_lock lock{mutex_};
  ++made_;
  if (!off_.empty()) { return nullptr; }
  void* data = nullptr;
  const ncclResult_t result = ncclMemAlloc(&data, bytes);
  if (result != ncclSuccess) {
    (void)cudaGetLastError();
    off_ = fmt::format("ncclMemAlloc of {} failed: {}", format_bytes(bytes),
                       ncclGetErrorString(result));
    return nullptr;
  }
  try {
    const std::optional<std::size_t> taken = taken_bytes(data);
    off_ = why_not_taken(bytes, taken);
    if (off_.empty()) {
      arenas_[data] = {made_, bytes, *taken - std::min(bytes, *taken)};
      return data;
    }
  } catch (...) {
    (void)ncclMemFree(data);
    throw;
  }
  (void)ncclMemFree(data);
  return nullptr;
}

bool NcclMemory::free(void* data) noexcept {
  const std::scoped_lock lock{mutex_};
  const auto found = arenas_.find(data);
  if (found == arenas_.end()) { return false; }
  // As cudaFree does: enqueued work may use it, and NCCL only unmaps.
  (void)cudaDeviceSynchronize();
  deregister_locked(found->second);
  (void)ncclMemFree(data);
  arenas_.erase(found);
  return true;
}

std::size_t NcclMemory::rounding_bytes() const {
  const std::scoped_lock lock{mutex_};
  std::size_t sum = 0;
  for (const auto& [data, arena] : arenas_) { sum += arena.rounding; }
  return sum;
}

std::string NcclMemory::text() const {
  const std::scoped_lock lock{mutex_};
  if (!off_.empty()) { return fmt::format("NCCL moves data through its own buffers: {}", off_); }
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::size_t waiting = 0;
  for (const auto& [data, arena] : arenas_) {
    count += arena.settled ? 1 : 0;
    bytes += arena.settled ? arena.bytes : 0;
    waiting += arena.settled ? 0 : 1;
  }
  std::string text = fmt::format("registered with NCCL{}: {}",
                                 how_ == Registration::window ? " as symmetric windows" : "",
                                 arenas_text(count, bytes));
  if (waiting == 0) { return text; }
  return text + fmt::format("; not yet {}{}", waiting,
                            !differ_ ? ""
                            : how_ == Registration::window
                                ? ", because the ranks' arenas differ"
                                : ", because the ranks have made different numbers of arenas");
}

void NcclMemory::register_locked(void* data, Arena& arena, NcclComm& comm) {
  void*& handle = arena.handles[&comm];
  if (handle != nullptr) { return; }
  handle = how_ == Registration::window ? comm.register_window(data, arena.bytes)
                                        : comm.register_memory(data, arena.bytes);
  if (handle == nullptr) {
    throw CommError{"NCCL declines (NCCL_LOCAL_REGISTER=0, or copies between GPUs by the host)"};
  }
}

void NcclMemory::deregister_locked(Arena& arena) noexcept {
  for (const auto& [comm, handle] : arena.handles) {
    if (handle != nullptr) { comm->deregister(handle, how_); }
  }
  arena.handles.clear();
  arena.settled = false;
}

void NcclMemory::deregister_all_locked() noexcept {
  for (auto& [data, arena] : arenas_) { deregister_locked(arena); }
}

/// In the same order on all ranks, as registering windows is a collective call.
std::map<std::int64_t, void*> NcclMemory::by_number_locked() const {
  std::map<std::int64_t, void*> all;
  for (const auto& [data, arena] : arenas_) { all[arena.number] = data; }
  return all;
}

std::string NcclMemory::arenas_offered_locked() const {
  std::string all;
  for (const auto& [number, data] : by_number_locked()) {
    all += fmt::format("{}:{} ", number, arenas_.at(data).bytes);
  }
  return all;
}

std::string NcclMemory::offer() {
  const std::scoped_lock lock{mutex_};
  if (how_ == Registration::window) {
    return PayloadWriter{}.number(0).text(off_).text(arenas_offered_locked()).take();
  }
  for (auto& [data, arena] : arenas_) {
    if (!off_.empty()) { break; }
    try {
      for (NcclComm* const comm : comms_) { register_locked(data, arena, *comm); }
    } catch (const CommError& error) { off_ = error.what(); }
  }
  return PayloadWriter{}.number(made_).text(off_).text("").take();
}

void NcclMemory::settle(const std::vector<std::string>& offers) {
  const std::scoped_lock lock{mutex_};
  if (off_agreed_) { return; }
  differ_ = false;
  std::string off;
  std::string arenas;
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    PayloadReader offer{offers[rank]};
    const std::int64_t made = how_ == Registration::window ? 0 : made_;
    differ_ = offer.number() != made || differ_;
    const std::string reason = offer.text();
    const std::string theirs = offer.text();
    differ_ = (rank > 0 && theirs != arenas) || differ_;
    arenas = theirs;
    if (off.empty() && !reason.empty()) { off = fmt::format("rank {}: {}", rank, reason); }
  }
  if (how_ == Registration::window) {
    if (!off.empty()) {
      throw CommError{fmt::format("`nccl.windows`: NCCL cannot register the arenas: {}", off)};
    }
    return differ_ ? void() : register_windows_locked();
  }
  // As in `free`: enqueued work may use registered memory.
  if (!off.empty() || differ_) { (void)cudaDeviceSynchronize(); }
  if (!off.empty()) {
    deregister_all_locked();
    off_ = off;
    off_agreed_ = true;
    return;
  }
  for (auto& [data, arena] : arenas_) {
    if (arena.settled) { continue; }
    if (differ_) {
      deregister_locked(arena);
    } else {
      arena.settled = true;
    }
  }
}

void NcclMemory::register_windows_locked() {
  const std::map<std::int64_t, void*> all = by_number_locked();
  for (NcclComm* const comm : comms_) {
    for (const auto& [number, data] : all) { register_locked(data, arenas_.at(data), *comm); }
  }
  for (auto& [data, arena] : arenas_) { arena.settled = true; }
}

void NcclMemory::end() noexcept {
  const std::scoped_lock lock{mutex_};
  deregister_all_locked();
  comms_.clear();
}

}  // namespace tessera::comm::nccl

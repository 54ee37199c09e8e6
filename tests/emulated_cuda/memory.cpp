#include "emulated_cuda/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "emulated_cuda/access.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/settings.hpp"

namespace emulated_cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kReserved = std::size_t{1} << 40U;  // address space only
constexpr unsigned char kFresh = 0xFF;
constexpr unsigned char kAround = 0xE5;

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Allocation {
  std::size_t bytes;
  std::byte* pages;
  std::size_t page_bytes;
  std::size_t counted;

  [[nodiscard]] std::byte* end() const { return pages + page_bytes; }
};

class Arena {
 public:
  explicit Arena(int device)
      : device_{device},
        begin_{static_cast<std::byte*>(mmap(nullptr, kReserved, PROT_NONE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))},
        next_{begin_ + kPage} {
    if (static_cast<void*>(begin_) == MAP_FAILED) { misuse("no addresses for device memory"); }
  }

  void* allocate(std::size_t bytes, std::size_t unit) {
    const std::scoped_lock lock{mutex_};
    has_context_ = true;
    const std::size_t counted = rounded(bytes, unit);
    if (counted > free_bytes()) { return nullptr; }
    Allocation made{bytes, next_, rounded(bytes, kPage), counted};
    if (made.end() + kPage > begin_ + kReserved) { misuse("out of addresses for device memory"); }
    open(made);
    next_ = made.end() + kPage;
    used_ += counted;
    // The allocation ends with its pages, so an inaccessible page follows.
    std::byte* const data = made.end() - rounded(bytes, kAlignment);
    const ScopedAccess access{ScopedAccess::kAll};
    std::memset(made.pages, kAround, made.page_bytes);
    std::memset(data, kFresh, bytes);
    live_.emplace(data, made);
    return data;
  }

  bool free(std::byte* data) {
    const std::scoped_lock lock{mutex_};
    const auto found = live_.find(data);
    if (found == live_.end()) { return false; }
    check_surroundings(data, found->second);
    close(found->second);
    used_ -= found->second.counted;
    live_.erase(found);
    return true;
  }

  [[nodiscard]] DeviceBytes bytes() const {
    const std::scoped_lock lock{mutex_};
    return {free_bytes(), settings().device_bytes, own_bytes(), has_context_};
  }

  void make_context() {
    const std::scoped_lock lock{mutex_};
    has_context_ = true;
  }

  [[nodiscard]] bool has_address(const std::byte* data) const {
    return data >= begin_ && data < begin_ + kReserved;
  }

  [[nodiscard]] bool is_allocated(const std::byte* data, std::size_t bytes) const {
    const std::scoped_lock lock{mutex_};
    const auto after = live_.upper_bound(const_cast<std::byte*>(data));
    if (after == live_.begin()) { return false; }
    const auto& [begin, allocation] = *std::prev(after);
    return data + bytes <= begin + allocation.bytes;
  }

  [[nodiscard]] std::optional<Taken> taken_by(const std::byte* data) const {
    const std::scoped_lock lock{mutex_};
    const auto after = live_.upper_bound(const_cast<std::byte*>(data));
    if (after == live_.begin()) { return {}; }
    const auto& [begin, allocation] = *std::prev(after);
    if (data >= begin + allocation.bytes) { return {}; }
    return Taken{begin, allocation.counted};
  }

  // Never waits for the lock: a signal handler calls this just before the process ends.
  [[nodiscard]] std::string describe(const std::byte* data) const {
    const std::unique_lock lock{mutex_, std::try_to_lock};
    const std::string device = " of device " + std::to_string(device_);
    const auto after = live_.upper_bound(const_cast<std::byte*>(data));
    if (!lock.owns_lock() || after == live_.begin()) { return "memory" + device; }
    const auto& [begin, allocation] = *std::prev(after);
    const auto offset = static_cast<std::size_t>(data - begin);
    const std::string what = "an allocation of " + std::to_string(allocation.bytes) + " bytes";
    if (offset < allocation.bytes) {
      return "byte " + std::to_string(offset) + " of " + what + device;
    }
    return std::to_string(offset - allocation.bytes) + " bytes behind the end of " + what + device +
           ", or freed memory";
  }

 private:
  [[nodiscard]] std::size_t own_bytes() const {
    return used_ + (has_context_ ? settings().context_bytes : 0);
  }
  [[nodiscard]] std::size_t free_bytes() const {
    const std::size_t total = settings().device_bytes;
    return total - std::min(own_bytes() + settings().others_bytes, total);
  }

  void open(const Allocation& allocation) const {
    const int both = PROT_READ | PROT_WRITE;
    const int status =
        protects() ? pkey_mprotect(allocation.pages, allocation.page_bytes, both, key_of(device_))
                   : mprotect(allocation.pages, allocation.page_bytes, both);
    if (status != 0) { misuse("the system has no memory for device memory"); }
    (void)madvise(allocation.pages, allocation.page_bytes, MADV_HUGEPAGE);  // faster to fill
  }

  static void close(const Allocation& allocation) {
    const void* const again = mmap(allocation.pages, allocation.page_bytes, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (again == MAP_FAILED) { misuse("device memory cannot be given back to the system"); }
  }

  void check_surroundings(const std::byte* data, const Allocation& allocation) const {
    const ScopedAccess access{ScopedAccess::kAll};
    const auto check = [&](const std::byte* from, const std::byte* to, const char* where) {
      for (; from != to; ++from) {
        if (*from != std::byte{kAround}) {
          misuse(std::string{"something has written "} + where + " an allocation of " +
                 std::to_string(allocation.bytes) + " bytes of device " + std::to_string(device_));
        }
      }
    };
    check(allocation.pages, data, "before");
    check(data + allocation.bytes, allocation.end(), "behind");
  }

  const int device_;
  std::byte* const begin_;
  mutable std::mutex mutex_;
  std::byte* next_;
  std::size_t used_ = 0;
  bool has_context_ = false;
  std::map<std::byte*, Allocation> live_;
};

Arena& arena(int device) {
  // Never destroyed: other statics may still free when the process ends.
  static auto* const arenas = [] {
    auto* const all = new std::array<Arena*, kMostDevices>{};
    for (int i = 0; i < kMostDevices; ++i) { (*all)[static_cast<std::size_t>(i)] = new Arena{i}; }
    return all;
  }();
  return *(*arenas)[static_cast<std::size_t>(device)];
}

struct Pinned {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> live;
};

Pinned& pinned() {
  static auto* const all = new Pinned;
  return *all;
}

}  // namespace

void* allocate_device(int device, std::size_t bytes, std::size_t unit) {
  return arena(device).allocate(bytes, unit);
}

bool free_device(void* data) {
  const auto device = device_of(data);
  return device && arena(*device).free(static_cast<std::byte*>(data));
}

DeviceBytes device_bytes(int device) {
  return arena(device).bytes();
}

void make_context(int device) {
  arena(device).make_context();
}

void* allocate_pinned(std::size_t bytes) {
  void* const data = std::aligned_alloc(kPage, rounded(bytes, kPage));
  if (data == nullptr) { return nullptr; }
  std::memset(data, kFresh, bytes);
  const std::scoped_lock lock{pinned().mutex};
  pinned().live.emplace(static_cast<std::byte*>(data), bytes);
  return data;
}

bool free_pinned(void* data) {
  {
    const std::scoped_lock lock{pinned().mutex};
    if (pinned().live.erase(static_cast<std::byte*>(data)) == 0) { return false; }
  }
  std::free(data);
  return true;
}

bool is_pinned(const void* data) {
  const auto* const byte = static_cast<const std::byte*>(data);
  const std::scoped_lock lock{pinned().mutex};
  const auto after = pinned().live.upper_bound(byte);
  if (after == pinned().live.begin()) { return false; }
  const auto& [begin, bytes] = *std::prev(after);
  return byte < begin + bytes;
}

std::optional<int> device_of(const void* data) {
  for (int device = 0; device < kMostDevices; ++device) {
    if (arena(device).has_address(static_cast<const std::byte*>(data))) { return device; }
  }
  return {};
}

bool is_allocated(const void* data, std::size_t bytes) {
  const auto device = device_of(data);
  return device && arena(*device).is_allocated(static_cast<const std::byte*>(data), bytes);
}

std::optional<Taken> taken_by(const void* data) {
  const auto device = device_of(data);
  return device ? arena(*device).taken_by(static_cast<const std::byte*>(data)) : std::nullopt;
}

std::string describe(const void* data) {
  const auto device = device_of(data);
  return device ? arena(*device).describe(static_cast<const std::byte*>(data)) : "host memory";
}

}  // namespace emulated_cuda

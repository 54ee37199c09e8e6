#include "emulated_cuda/dynamic_shared.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "emulated_cuda/block.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/settings.hpp"
#include "emulated_cuda/symbols.hpp"

namespace emulated_cuda {
namespace {

constexpr std::size_t kFencePage = 4096;
constexpr std::size_t kSharedAlignment = 16;
constexpr std::size_t kSharedUnasked = std::size_t{48} << 10U;
constexpr int kNothing = 0xFF;
constexpr std::byte kFence{0xE5};

constinit thread_local const DynamicShared* of_grid = nullptr;

std::size_t whole(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Allowed {
  std::mutex mutex;
  std::map<std::pair<const void*, int>, std::size_t> bytes;
};

Allowed& allowed() {
  static auto* const all = new Allowed;
  return *all;
}

}  // namespace

std::size_t most_shared_bytes() {
  const int capability = settings().capability;
  const bool small = capability == 86 || capability == 89 || capability >= 120;
  const std::size_t kib = capability < 80 ? 64 : small ? 99 : capability < 90 ? 163 : 227;
  return kib << 10U;
}

bool may_have_shared(const void* kernel, int device, std::size_t bytes) {
  if (bytes == 0) { return true; }
  const std::size_t possible = possible_shared_bytes(kernel);
  const std::scoped_lock lock{allowed().mutex};
  const auto found = allowed().bytes.find({kernel, device});
  return found != allowed().bytes.end() ? bytes <= found->second
                                        : possible + bytes <= kSharedUnasked;
}

bool allow_shared(const void* kernel, int device, std::size_t bytes) {
  if (declared_shared_bytes(kernel) + bytes > most_shared_bytes()) { return false; }
  const std::scoped_lock lock{allowed().mutex};
  allowed().bytes[{kernel, device}] = bytes;
  return true;
}

DynamicShared::DynamicShared(std::size_t bytes) : bytes_{bytes} {
  if (bytes == 0) { return; }
  page_bytes_ = whole(bytes, kFencePage);
  void* const all = mmap(nullptr, page_bytes_ + 2 * kFencePage, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) { misuse("the system has no memory for shared memory"); }
  pages_ = static_cast<std::byte*>(all) + kFencePage;
  if (mprotect(pages_, page_bytes_, PROT_READ | PROT_WRITE) != 0) {
    misuse("the system has no memory for shared memory");
  }
  std::fill_n(pages_, page_bytes_, kFence);
  data_ = pages_ + page_bytes_ - whole(bytes, kSharedAlignment);
  of_grid = this;
}

DynamicShared::~DynamicShared() {
  if (bytes_ == 0) { return; }
  of_grid = nullptr;
  (void)munmap(pages_ - kFencePage, page_bytes_ + 2 * kFencePage);
}

void DynamicShared::poison() const {
  if (bytes_ > 0) { std::memset(data_, kNothing, bytes_); }
}

void DynamicShared::check_surroundings() const {
  if (bytes_ == 0) { return; }
  const auto is_around = [](std::byte byte) { return byte == kFence; };
  if (!std::all_of(pages_, data_, is_around) ||
      !std::all_of(data_ + bytes_, pages_ + page_bytes_, is_around)) {
    misuse("a kernel writes around the " + std::to_string(bytes_) +
           " bytes of shared memory that its launch gave each block");
  }
}

bool DynamicShared::fences(const void* address) const noexcept {
  const auto* const byte = static_cast<const std::byte*>(address);
  return (byte >= pages_ - kFencePage && byte < pages_) ||
         (byte >= pages_ + page_bytes_ && byte < pages_ + page_bytes_ + kFencePage);
}

std::span<const std::byte> given_shared() {
  if (of_grid == nullptr) { return {}; }
  return {static_cast<const std::byte*>(of_grid->data()), of_grid->bytes()};
}

bool is_beyond_dynamic_shared(const void* address) {
  return of_grid != nullptr && of_grid->fences(address);
}

void* block_dynamic_shared() {
  if (of_grid == nullptr) {
    misuse("a kernel uses shared memory of its launch, which gave it none");
  }
  return of_grid->data();
}

}  // namespace emulated_cuda

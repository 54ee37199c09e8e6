#include "emulated_cuda/late_copies.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/observer.hpp"

namespace emulated_cuda {
namespace {

constexpr std::size_t kCopyBytes = 16;

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kCopyBytes == 0;
}

}  // namespace

void LateCopies::issue(void* to, const void* from, int bytes) {
  if (!is_aligned(to) || !is_aligned(from) || bytes < 0 || bytes > 16) {
    misuse("an asynchronous copy of 16 bytes between addresses that are no multiples of them");
  }
  const Copy copy{to, from, static_cast<std::size_t>(bytes)};
  if (GridObserver* const follows = observer()) {
    follows->begin_copy(to, kCopyBytes, from, copy.bytes);
  }
  std::memset(to, 0xFF, kCopyBytes);
  open_.push_back(copy);
}

void LateCopies::close() {
  groups_.push_back(std::exchange(open_, {}));
}

void LateCopies::finish(int groups) {
  GridObserver* const follows = observer();
  while (std::ssize(groups_) > groups) {
    for (const Copy& copy : groups_.front()) {
      if (follows != nullptr) { follows->finish_copy(copy.to, kCopyBytes, copy.from, copy.bytes); }
      std::memset(copy.to, 0, kCopyBytes);
      if (copy.bytes > 0) { std::memcpy(copy.to, copy.from, copy.bytes); }
    }
    groups_.erase(groups_.begin());
  }
}

void LateCopies::drop() {
  open_.clear();
  groups_.clear();
}

}  // namespace emulated_cuda

#include "emulated_cuda/access.hpp"

#include <sys/mman.h>

#include <array>

#include "emulated_cuda/settings.hpp"

namespace emulated_cuda {
namespace {

struct Keys {
  std::array<int, kMostDevices> of{};
  bool there = true;

  Keys() {
    for (int& key : of) {
      key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
      there = there && key > 0;
    }
  }
};

const Keys& keys() {
  static const Keys keys;
  return keys;
}

constinit thread_local std::uint32_t allowed = ScopedAccess::kNone;

void allow(std::uint32_t mask) {
  allowed = mask;
  if (!protects()) { return; }
  for (int device = 0; device < kMostDevices; ++device) {
    const bool may = (mask >> static_cast<unsigned>(device) & 1U) != 0;
    pkey_set(keys().of[static_cast<std::size_t>(device)], may ? 0 : PKEY_DISABLE_ACCESS);
  }
}

}  // namespace

bool protects() {
  return keys().there;
}

int key_of(int device) {
  return protects() ? keys().of[static_cast<std::size_t>(device)] : -1;
}

ScopedAccess::ScopedAccess(std::uint32_t mask) : before_{allowed} {
  if (mask != before_) { allow(mask); }
}

ScopedAccess::~ScopedAccess() {
  if (allowed != before_) { allow(before_); }
}

}  // namespace emulated_cuda

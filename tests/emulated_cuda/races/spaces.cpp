#include "emulated_cuda/races/spaces.hpp"

#include <cuda_runtime.h>
#include <link.h>

#include <span>

#include "emulated_cuda/dynamic_shared.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/symbols.hpp"

namespace emulated_cuda::races {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const void* begin, std::size_t bytes) {
  return {static_cast<const std::byte*>(begin), bytes};
}

bool contains(Bytes bytes, const void* data) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(data) - bytes.data()) <
         bytes.size();
}

int look_for_arrays(dl_phdr_info* object, std::size_t /*bytes*/, void* found) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_TLS) { continue; }
    const Bytes bytes = bytes_of(object->dlpi_tls_data, segment.p_memsz);
    if (!contains(bytes, &threadIdx)) { continue; }
    *static_cast<Bytes*>(found) = bytes;
    return 1;
  }
  return 0;
}

/// The module's thread-local memory of the calling thread.
Bytes thread_local_bytes() {
  thread_local const Bytes found = [] {
    Bytes bytes;
    dl_iterate_phdr(&look_for_arrays, &bytes);
    return bytes;
  }();
  return found;
}

}  // namespace

Spaces::Spaces()
    : arrays_{reinterpret_cast<std::uintptr_t>(thread_local_bytes().data())},
      arrays_bytes_{thread_local_bytes().size()},
      given_{reinterpret_cast<std::uintptr_t>(given_shared().data())},
      given_bytes_{given_shared().size()} {}

Space Spaces::of_thread_local(std::uintptr_t at) noexcept {
  const auto is_in = [&](const auto& variable) {
    return at - reinterpret_cast<std::uintptr_t>(&variable) < sizeof variable;
  };
  const bool is_own = is_in(threadIdx) || is_in(blockIdx) || is_in(blockDim) || is_in(gridDim);
  return is_own ? Space::own : Space::shared;
}

std::string Spaces::describe(const void* data) const {
  if (of(data) == Space::global) { return emulated_cuda::describe(data); }
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (at - given_ < given_bytes_) {
    return "byte " + std::to_string(at - given_) + " of the shared memory of the launch";
  }
  return "shared memory " + shared_array_at(data);
}

}  // namespace emulated_cuda::races

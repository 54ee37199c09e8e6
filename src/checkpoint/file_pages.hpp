#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Files are read and written past the system's cache where memory and file are aligned alike: data
// that begins k bytes into a page of the file begins k bytes into a page of memory.

/// Bytes of a page.
inline constexpr std::size_t kFilePage = 4096;
/// The least number of bytes for which it pays off.
inline constexpr std::size_t kLeastPastCache = std::size_t{1} << 20;

/// Whether `bytes` at `address` and at byte `first` of a file bypass the cache.
[[nodiscard]] inline bool goes_past_cache(const void* address, std::uint64_t first,
                                          std::size_t bytes) noexcept {
  return bytes >= kLeastPastCache &&
         reinterpret_cast<std::uintptr_t>(address) % kFilePage == first % kFilePage;
}

/// The first offset from `from` on with the same place in its page as byte `first` of a file.
[[nodiscard]] inline std::size_t place_alike(std::size_t from, std::uint64_t first) noexcept {
  return from + (first % kFilePage + kFilePage - from % kFilePage) % kFilePage;
}

/// The first page boundary at or after `at`.
[[nodiscard]] inline std::uint64_t page_after(std::uint64_t at) noexcept {
  return (at + kFilePage - 1) / kFilePage * kFilePage;
}

/// The first page of `memory`, whose size includes one page more than is used.
[[nodiscard]] inline std::byte* first_page(void* memory) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return static_cast<std::byte*>(memory) + (kFilePage - address % kFilePage) % kFilePage;
}

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Files are read and written past the system's cache where memory and file lie alike in their
// pages: what begins k bytes into a page of the file begins k bytes into a page of memory.

/// Bytes of a page.
inline constexpr std::size_t kFilePage = 4096;
/// The least that is worth it.
inline constexpr std::size_t kLeastPastCache = std::size_t{1} << 20;

/// Whether `bytes` at `address` and at byte `first` of a file go past the cache.
[[nodiscard]] inline bool goes_past_cache(const void* address, std::uint64_t first,
                                          std::size_t bytes) noexcept {
  return bytes >= kLeastPastCache &&
         reinterpret_cast<std::uintptr_t>(address) % kFilePage == first % kFilePage;
}

/// The first place from `from` on that lies in its page as byte `first` of a file does.
[[nodiscard]] inline std::size_t place_alike(std::size_t from, std::uint64_t first) noexcept {
  return from + (first % kFilePage + kFilePage - from % kFilePage) % kFilePage;
}

/// The first page from `at` on.
[[nodiscard]] inline std::uint64_t page_after(std::uint64_t at) noexcept {
  return (at + kFilePage - 1) / kFilePage * kFilePage;
}

/// The first page of `memory`, which has room for one more than is used.
[[nodiscard]] inline std::byte* first_page(void* memory) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return static_cast<std::byte*>(memory) + (kFilePage - address % kFilePage) % kFilePage;
}

}  // namespace tessera

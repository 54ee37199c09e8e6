#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tessera::checkpoint {

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

/// The result of reading or writing bytes of a file.
struct Transfer {
  enum class End : std::uint8_t {
    whole,    ///< all bytes were moved
    refused,  ///< the file system cannot move the rest past its cache
    failed,   ///< `error` has the reason
  };
  std::size_t bytes = 0;  ///< bytes moved so far
  End end = End::whole;
  int error = 0;  ///< errno; 0: the system moved nothing
};

/// Moves `bytes` bytes by calls of `move(done)`, which moves some of the bytes from `done` on, like
/// pread and pwrite. `past_cache`: the file was opened with O_DIRECT.
template <class Move>
[[nodiscard]] Transfer transfer(std::size_t bytes, bool past_cache, const Move& move) {
  Transfer done;
  while (done.bytes < bytes) {
    const ssize_t moved = move(done.bytes);
    if (moved < 0 && errno == EINTR) { continue; }
    if (moved > 0) { done.bytes += static_cast<std::size_t>(moved); }
    if (past_cache && (moved < 0 ? errno == EINVAL : moved % kFilePage != 0)) {
      done.end = Transfer::End::refused;
      return done;
    }
    if (moved <= 0) {
      done.end = Transfer::End::failed;
      done.error = moved < 0 ? errno : 0;
      return done;
    }
  }
  return done;
}

/// Calls `move(first, part, past_cache)` for parts of `bytes`, which begin at byte `first` of a
/// file: whole pages, which bypass the cache, and the edges around them.
template <class Bytes, class Move>
void move_by_pages(std::uint64_t first, Bytes bytes, const Move& move) {
  const std::size_t head = (kFilePage - first % kFilePage) % kFilePage;
  const std::size_t middle = (bytes.size() - head) / kFilePage * kFilePage;
  move(first, bytes.first(head), false);
  move(first + head, bytes.subspan(head, middle), true);
  move(first + head + middle, bytes.subspan(head + middle), false);
}

}  // namespace tessera::checkpoint

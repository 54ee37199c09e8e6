#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "checkpoint/file_pages.hpp"

namespace tessera {

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

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/shard/ranges.hpp"

namespace tessera::checkpoint {

/// An array of elements in a file.
struct FileArray {
  std::size_t file = 0;          ///< a number of the caller's
  std::uint64_t first_byte = 0;  ///< offset of its first element in the file
  std::size_t elem_bytes = 1;

  /// Offset of element `elem` in the file.
  [[nodiscard]] std::uint64_t at(std::int64_t elem) const noexcept {
    return first_byte + static_cast<std::uint64_t>(elem) * elem_bytes;
  }
};

/// Elements of an array in a file, in a buffer.
struct BufferedElems {
  Range elems = {};       ///< of the array
  std::size_t bytes = 0;  ///< in the buffer
  std::size_t at = 0;     ///< offset in the buffer
};

/// Elements of a piece of a rank's share, in a buffer between the share and its files.
struct BufferPart {
  std::size_t piece = 0;  ///< index in TrainingState::share
  Range elems = {};       ///< of the piece
  /// Whether they are not end to end in the file, or share chunks of its checksums with others.
  bool in_runs = false;
  /// Whether elements of the same piece that follow in the buffer become part of it.
  bool grows = false;
  BufferedElems own = {};
  BufferedElems beside = {};  ///< of a second array, which completes them; empty if there is none
};

/// Bytes of a file that lie in a buffer as they lie in the file.
struct BufferRun {
  std::size_t file = 0;
  std::uint64_t first = 0;  ///< offset in the file
  std::size_t bytes = 0;
  std::size_t at = 0;  ///< offset in the buffer

  [[nodiscard]] std::size_t end() const noexcept { return at + bytes; }
  [[nodiscard]] std::uint64_t end_in_file() const noexcept { return first + bytes; }
};

/// What a buffer holds at a time.
struct BufferRound {
  std::vector<BufferPart> parts;
  std::vector<BufferRun> runs;
  std::size_t end = 0;           ///< offset after the last byte
  std::size_t carried = 0;       ///< the first bytes of its first run are of the round before,
  std::size_t carried_from = 0;  ///< in whose buffer they begin at this offset
};

/// Divides a rank's share into rounds of a buffer, for a save and for a load. What is contiguous in
/// a file stays contiguous. Other data gets pages of its own, with the same offset in the page as
/// in the file, so that it can bypass the system's cache.
class BufferPlan {
 public:
  /// A round has at most `most_bytes`, except for a part that is longer.
  explicit BufferPlan(std::size_t most_bytes) : most_bytes_{most_bytes} {}

  /// Adds a part to the last round, or to a new one. `own` and `beside` are the arrays of its
  /// elements; without `own`, or in runs, they get pages of their own.
  void add(BufferPart part, const FileArray* own, const FileArray* beside = nullptr);
  /// Moves the bytes of a page that two rounds share to the second one, for data that is written:
  /// pages in part through the cache cost more.
  void cut_at_pages();
  [[nodiscard]] const std::vector<BufferRound>& rounds() const noexcept { return rounds_; }

 private:
  [[nodiscard]] bool append(BufferRound& round, BufferPart part, const FileArray* own,
                            const FileArray* beside) const;

  std::size_t most_bytes_;
  std::vector<BufferRound> rounds_;
};

}  // namespace tessera::checkpoint

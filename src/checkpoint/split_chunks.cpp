#include "checkpoint/split_chunks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "checkpoint/readable_file.hpp"
#include "tessera/base/math.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::checkpoint {
namespace {

constexpr std::uint64_t kMostRead = std::uint64_t{1} << 18;  // a multiple of every chunk

/// The tensor `tensor` of a plan, in chunks.
struct ChunkedTensor {
  std::uint64_t number;
  std::uint64_t bytes;
  std::uint64_t chunk_bytes;

  /// What bytes [first, end) add for chunk `chunk`: the chunk's own random factor, times the bytes
  /// that they have of it, less all of its bytes if it begins among them.
  [[nodiscard]] std::uint64_t balance(std::uint64_t chunk, std::uint64_t first,
                                      std::uint64_t end) const {
    const std::uint64_t begin = chunk * chunk_bytes;
    const std::uint64_t stop = std::min(begin + chunk_bytes, bytes);
    const std::uint64_t held = std::min(end, stop) - std::max(first, begin);
    const std::uint64_t whole = first <= begin ? stop - begin : 0;
    const std::array<std::uint64_t, 2> key{number, chunk};
    return XXH3_64bits(key.data(), sizeof key) * (held - whole);
  }
};

}  // namespace

std::uint64_t balance_of_splits(const PlannedPiece& piece, const CheckpointLayout& layout) {
  const ChunkedTensor tensor{.number = piece.tensor,
                             .bytes = layout.places()[piece.tensor].bytes,
                             .chunk_bytes = layout.tensors()[piece.tensor].chunk_bytes};
  std::uint64_t sum = 0;
  piece.for_each_run(0, piece.bytes, [&](auto first, auto /*from*/, auto count) {
    if (count == 0) { return; }
    const std::uint64_t end = first + count;
    const std::uint64_t front = first / tensor.chunk_bytes;
    const std::uint64_t back = (end - 1) / tensor.chunk_bytes;
    sum += tensor.balance(front, first, end);
    if (back != front) { sum += tensor.balance(back, first, end); }
  });
  return sum;
}

void sum_split_chunks(const SavePlan& plan, const std::filesystem::path& folder,
                      TensorWriter& writer) {
  ReadableFiles files;
  std::vector<std::byte> bytes;
  for (const PlannedPiece& piece : plan.pieces()) {
    if (piece.whole_chunks) { continue; }
    const TensorPlace& place = plan.layout().places()[piece.tensor];
    const std::uint64_t chunk = plan.layout().tensors()[piece.tensor].chunk_bytes;
    const auto file = files.at(folder / plan.layout().files()[place.file].name);
    piece.for_each_run(0, piece.bytes, [&](auto first, auto /*from*/, auto count) {
      const std::uint64_t end = std::min(round_up(first + count, chunk), place.bytes);
      for (std::uint64_t at = round_up(first, chunk); at < end; at += kMostRead) {
        bytes.resize(std::min(kMostRead, end - at));
        file->read_at(place.first_byte + at, bytes);
        writer.sum(piece.tensor, at, bytes);
      }
    });
  }
}

}  // namespace tessera::checkpoint

#include "checkpoint/split_chunks.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/readable_file.hpp"
#include "tessera/base/math.hpp"

namespace tessera {
namespace {

constexpr std::uint64_t kMostRead = std::uint64_t{1} << 18;  // a multiple of every chunk

}  // namespace

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

}  // namespace tessera

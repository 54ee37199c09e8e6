#include "checkpoint/file_runs.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/base/math.hpp"

namespace tessera::checkpoint {
namespace {

/// The most elements that are read at once, besides one run and its chunks.
constexpr std::int64_t kMostWindow = 4 * kMostRunElems;

/// The chunks of a tensor.
class Chunks {
 public:
  explicit Chunks(const FileTensor& tensor)
      : chunk_{std::max<std::int64_t>(
            static_cast<std::int64_t>(tensor.listed().chunk_bytes / tensor.elem_bytes), 1)},
        elems_{static_cast<std::int64_t>(tensor.listed().bytes / tensor.elem_bytes)} {}

  /// The chunks that contain elements of a run.
  [[nodiscard]] Range around(const Range& run) const {
    const std::int64_t first = run.first / chunk_ * chunk_;
    return {first, std::min(round_up(run.end(), chunk_), elems_) - first};
  }
  /// The chunks that begin in a run.
  [[nodiscard]] Range beginning(const FileRun& run) const {
    const std::int64_t first = std::min(round_up(run.summed_from, chunk_), elems_);
    const std::int64_t end = std::min(round_up(run.elems.end(), chunk_), elems_);
    return {first, std::max<std::int64_t>(end - first, 0)};
  }

 private:
  std::int64_t chunk_;
  std::int64_t elems_;
};

}  // namespace

void read_runs(const FileTensor& tensor, std::span<const FileRun> runs, std::byte* to,
               SumTable& sums) {
  const Chunks chunks{tensor};
  const ManifestTensor& listed = tensor.listed();
  const auto bytes = [&](std::int64_t elems) {
    return static_cast<std::size_t>(elems) * tensor.elem_bytes;
  };
  std::vector<std::byte> read;
  for (std::size_t i = 0; i < runs.size();) {
    Range window = chunks.around(runs[i].elems);
    std::size_t end = i + 1;
    for (; end < runs.size(); ++end) {
      const Range next = chunks.around(runs[end].elems);
      if (next.first > window.end() || next.end() - window.first > kMostWindow) { break; }
      window.elems = std::max(window.end(), next.end()) - window.first;
    }
    read.resize(bytes(window.elems));
    tensor.source.read(listed.file, listed.first_byte + bytes(window.first), read);
    for (; i < end; ++i) {
      std::memcpy(to, read.data() + bytes(runs[i].elems.first - window.first),
                  bytes(runs[i].elems.elems));
      to += bytes(runs[i].elems.elems);
      const Range own = chunks.beginning(runs[i]);
      if (!tensor.summed || listed.sums.empty() || own.elems == 0) { continue; }
      sums.add(tensor.number, listed.bytes, listed.chunk_bytes, bytes(own.first),
               std::span{read}.subspan(bytes(own.first - window.first), bytes(own.elems)));
    }
  }
}

}  // namespace tessera::checkpoint

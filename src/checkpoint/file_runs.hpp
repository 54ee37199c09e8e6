#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/checksum.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "tessera/shard/ranges.hpp"

namespace tessera::checkpoint {

/// A run of elements of a tensor in a file that are wanted in memory. Each chunk is summed by the
/// run that it begins in.
struct FileRun {
  Range elems;
  std::int64_t summed_from = 0;
};

/// A tensor in a file, to be read in runs.
struct FileTensor {
  LoadSource& source;
  std::size_t number = 0;      ///< index in Manifest::tensors
  std::size_t elem_bytes = 1;  ///< bytes of an element
  bool summed = false;         ///< whether the bytes read are summed

  [[nodiscard]] const ManifestTensor& listed() const { return source.manifest().tensors[number]; }
};

/// The most elements of a run.
inline constexpr std::int64_t kMostRunElems = std::int64_t{1} << 14;

/// Reads the ascending `runs` of `tensor`, end to end, into `to`. Reads whole chunks around them,
/// neighbours together, and adds the chunks that begin in a run to `sums`.
void read_runs(const FileTensor& tensor, std::span<const FileRun> runs, std::byte* to,
               SumTable& sums);

}  // namespace tessera::checkpoint

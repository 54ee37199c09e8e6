#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "tessera/shard/ranges.hpp"

namespace tessera {

/// Elements of a tensor in a file that are wanted in memory, and from which of them on the reader
/// sums: each chunk is summed by the run that it begins in.
struct FileRun {
  Range elems;
  std::int64_t summed_from = 0;
};

/// A tensor in a file, as runs of it are read.
struct FileTensor {
  LoadSource& source;
  std::size_t number = 0;      ///< index in Manifest::tensors
  std::size_t elem_bytes = 1;  ///< of an element
  bool summed = false;         ///< whether what is read is summed

  [[nodiscard]] const ManifestTensor& listed() const { return source.manifest().tensors[number]; }
};

/// The most elements of a run.
inline constexpr std::int64_t kMostRunElems = std::int64_t{1} << 14;

/// Reads `runs` of `tensor`, which ascend, end to end into `to`. Whole chunks around them are read,
/// neighbours at once, and those that begin in a run are added to `sums`.
void read_runs(const FileTensor& tensor, std::span<const FileRun> runs, std::byte* to,
               SumTable& sums);

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/checkpoint/reader.hpp"

namespace tessera {

/// How the weights of a checkpoint are exported.
struct ExportOptions {
  /// The type of all weights in the new files: "F32", "BF16" or "F16". Empty: as they are in the
  /// checkpoint, or "F32" with `masters`.
  std::string dtype = {};
  /// Whether weights with fp32 masters are exported from these. Others are exported as they are.
  bool masters = false;
  /// The most bytes of tensors in a file of a folder; larger tensors have a file of their own.
  std::uint64_t shard_bytes = 5'000'000'000;
};

/// The weights of a checkpoint for other programs, as safetensors files.
///
/// Memory:  up to 96 MiB while it reads: a block of a weight and of its remainder, the values in
///          fp32, and those in the new type.
/// Errors:  FormatError for damage in what is read, Error if a file cannot be written.
/// Threads: one at a time.
class WeightExport {
 public:
  /// A function that a write reports to: `bytes` is what it has done since its last report.
  using Progress = CheckpointReader::Progress;

  /// `checkpoint` outlives this object. Checks its files of the weights, and of the masters with
  /// `masters`, whatever it was opened with. Throws FormatError for these files, ConfigError for a
  /// weight whose type cannot be converted, and ContractError for another `dtype` and for
  /// `shard_bytes` 0.
  WeightExport(const CheckpointReader& checkpoint, const ExportOptions& options);
  /// A temporary would not outlive this object.
  WeightExport(const CheckpointReader&& checkpoint, const ExportOptions& options) = delete;

  /// Returns the number of weights.
  [[nodiscard]] std::size_t weights() const noexcept { return tensors_.size(); }
  /// Returns the bytes that a write reads and reports as progress.
  [[nodiscard]] std::uint64_t bytes() const noexcept;

  /// Reads the weights whose new type has a smaller range, and calls `found` for each of them with
  /// finite values that become infinite: "weight 'w': 3 of its values, the first 70000 at element
  /// 5, are beyond the range of fp16". A function that throws ends the search.
  void find_infinities(const std::function<void(const std::string& which)>& found) const;

  /// What was written.
  struct Written {
    std::size_t files = 0;    ///< the number of files, without an index
    std::uint64_t bytes = 0;  ///< their size
  };
  /// Writes all weights to the file `path`, which appears complete or not at all.
  Written to_file(const std::filesystem::path& path, const Progress& progress = {}) const;
  /// Writes all weights to model.safetensors in the existing folder `path`, or to several files
  /// and, last, their index. Throws ConfigError if the folder holds model.safetensors or an index
  /// already: two models would be mixed. Files that a failed write has left are replaced.
  Written to_folder(const std::filesystem::path& path, const Progress& progress = {}) const;

 private:
  // A weight to write, and its source.
  struct Tensor {
    std::string name;
    const ManifestTensor* from = nullptr;
    const ManifestTensor* remainder = nullptr;  // of the weight's master
    std::string dtype;                          // in the new file

    [[nodiscard]] bool copies() const { return remainder == nullptr && dtype == from->dtype; }
    [[nodiscard]] bool narrows() const {
      return !copies() && dtype != "F32" && from->dtype != "F16";  // F16 has the smallest range
    }
  };
  class Blocks;
  [[nodiscard]] Tensor exported(const ManifestTensor& weight, const ExportOptions& options) const;
  [[nodiscard]] Written write(
      std::uint64_t shard_bytes, const Progress& progress,
      const std::function<std::filesystem::path(const std::string& name)>& path_of) const;

  const CheckpointReader& checkpoint_;
  std::uint64_t shard_bytes_;
  std::vector<Tensor> tensors_;
};

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/checkpoint/manifest.hpp"

namespace tessera {

namespace checkpoint {
class RankReads;
}

/// Whether one content of a checkpoint is whole.
struct Verdict {
  Content content{};        ///< the content
  std::size_t tensors = 0;  ///< the number of its tensors
  std::uint64_t bytes = 0;  ///< their size
  std::string damage = {};  ///< the first damage, with file, tensor and bytes; empty if it is whole
};

/// Reads one checkpoint, the folder of a step, without a model. Opening it checks the manifest, and
/// of each file of `contents` that it exists with its size and that its header agrees with the
/// manifest. Nothing is asked of other files, so that damage to one content does not keep another
/// from being read.
///
/// Memory:  the manifest, and 16 MiB while it verifies. At most 16 files are open at a time, each
///          with up to two descriptors.
/// Errors:  FormatError with file, tensor and offset. A tensor that is handed in is one of
///          `manifest().tensors` of this reader; ContractError for others.
/// Threads: any.
class CheckpointReader {
 public:
  /// The bytes of a tensor that one checksum covers. Blocks begin at the tensor's first byte; the
  /// last one may be shorter.
  static constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 20;
  /// A function that a call reports to: `bytes` is what it has done since its last report.
  using Progress = std::function<void(std::uint64_t bytes)>;

  /// Opens the checkpoint in `folder`.
  explicit CheckpointReader(const std::filesystem::path& folder,
                            const Contents& contents = every_content());
  /// Closes all files.
  ~CheckpointReader();

  /// Returns what the checkpoint holds.
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  /// Returns the absolute path of the folder.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Returns the tensor of this name and role, which lives as long as the reader; null if there is
  /// none.
  [[nodiscard]] const ManifestTensor* find(std::string_view name, std::string_view role) const;
  /// Returns the text of provenance.json: which program wrote the checkpoint, as JSON. Nothing
  /// depends on it. Throws FormatError if it cannot be read.
  [[nodiscard]] std::string provenance() const;

  /// Writes elements [first, first + out.size()) of a tensor, converted to fp32, to `out`. They are
  /// not verified. Throws FormatError if its dtype is not F32, BF16 or F16, and ContractError if it
  /// does not have all of the elements.
  void read(const ManifestTensor& tensor, std::int64_t first, std::span<float> out) const;
  /// Writes bytes [first, first + out.size()) of a tensor's data, of any dtype, to `out`. They are
  /// not verified. Throws ContractError if it does not have all of the bytes.
  void read_bytes(const ManifestTensor& tensor, std::uint64_t first,
                  std::span<std::byte> out) const;
  /// Reads block `block` of a tensor's data, below tensor.sums.size(), into the first bytes of
  /// `buffer`, compares its checksum and returns these bytes. `buffer` has room for kBlockBytes, or
  /// for the whole tensor. Throws FormatError that names the bytes if the checksum differs, and
  /// ContractError if there is no such block, or no room for it.
  std::span<const std::byte> read_block(const ManifestTensor& tensor, std::size_t block,
                                        std::span<std::byte> buffer) const;

  /// Checks the files of `contents`, as opening does.
  void check_files(const Contents& contents) const;
  /// Reads the tensors of all contents that it was opened with once, and compares the checksums.
  /// Throws FormatError that names file, tensor and the bytes of the first damaged block.
  void verify(const Progress& progress = {}) const;
  /// Checks the files of `content`, reads its tensors and compares the checksums. `load` with
  /// What::weights takes the checkpoint if and only if the contents that the model has of weights
  /// and masters are whole, and What::everything if and only if all are.
  [[nodiscard]] Verdict verdict_on(Content content, const Progress& progress = {}) const;

 private:
  friend class checkpoint::RankReads;
  void read_file(const std::string& file, std::uint64_t first, std::span<std::byte> out) const;
  void require_own(const ManifestTensor& tensor) const;
  void verify(Content content, const Progress& progress) const;
  void check_block(const ManifestTensor& tensor, std::size_t block,
                   std::span<const std::byte> bytes) const;
  [[noreturn]] void refuse_block(const ManifestTensor& tensor, std::size_t block,
                                 std::uint64_t found) const;

  struct Files;
  std::filesystem::path folder_;
  Contents contents_;
  Manifest manifest_;
  std::unique_ptr<Files> files_;
};

}  // namespace tessera

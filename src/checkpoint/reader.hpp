#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_contents.hpp"

namespace tessera {

/// Whether one content of a checkpoint is whole.
struct Verdict {
  Content content{};
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of its tensors
  std::string damage = {};  ///< the first, with file, tensor and bytes; empty if it is whole
};

/// Reads one checkpoint: the folder of a step. Opening it checks the manifest, and of each file of
/// `contents` that it exists with its size and that its header agrees with the manifest. Nothing is
/// asked of other files, so that damage to one content does not keep another from being read.
///
/// Errors:  FormatError with file, tensor and offset.
/// Threads: any; `verify` one at a time.
class CheckpointReader {
 public:
  using Progress = std::function<void(std::uint64_t bytes)>;

  explicit CheckpointReader(const std::filesystem::path& folder,
                            const Contents& contents = every_content());
  ~CheckpointReader();

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Null if there is none.
  [[nodiscard]] const ManifestTensor* find(std::string_view name, std::string_view role) const;
  /// Checks the files of `contents`, as opening does.
  void check_files(const Contents& contents) const;
  /// Reads bytes [first, first + out.size()) of a tensor's data, without verifying them.
  void read(const ManifestTensor& tensor, std::uint64_t first, std::span<std::byte> out) const;
  /// Reads bytes [first, first + out.size()) of one of its files.
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) const;

  /// Compares the checksum of block `block` (TensorSums), whose bytes are `bytes`. Throws
  /// FormatError naming file, tensor and bytes if it differs.
  void check_block(const ManifestTensor& tensor, std::size_t block,
                   std::span<const std::byte> bytes) const;

  /// Reads the tensors of all contents that it was opened with once, and compares the sums. Calls
  /// `progress` with the bytes done. Throws FormatError naming file, tensor and the bytes of the
  /// first damaged block.
  void verify(const Progress& progress = {}) const;
  /// Verifies every `parts`-th block, from number `part` on, for several readers that share the
  /// work.
  void verify_part_of(std::size_t part, std::size_t parts) const;
  /// Checks the files of `content`, reads its tensors and compares the sums. `load` with
  /// What::weights takes the checkpoint if and only if the contents that the model has of weights
  /// and masters are whole, and What::everything if and only if all are.
  [[nodiscard]] Verdict verdict_on(Content content, const Progress& progress = {}) const;

 private:
  void verify(Content content, const Progress& progress) const;
  void verify_block(const ManifestTensor& tensor, std::size_t block,
                    std::span<std::byte> buffer) const;
  [[noreturn]] void refuse_block(const ManifestTensor& tensor, std::size_t block,
                                 std::uint64_t found) const;

  struct Files;
  std::filesystem::path folder_;
  Contents contents_;
  Manifest manifest_;
  std::unique_ptr<Files> files_;
};

}  // namespace tessera

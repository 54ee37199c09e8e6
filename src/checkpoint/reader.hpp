#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace tessera {

/// Reads one checkpoint: the folder of a step. Opening it checks that each file exists with its
/// size and that headers agree with the manifest.
///
/// Errors:  FormatError with file, tensor and offset.
/// Threads: any; `verify` one at a time.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path folder);
  ~CheckpointReader();

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Null if there is none.
  [[nodiscard]] const ManifestTensor* find(std::string_view name, std::string_view role) const;
  /// Reads bytes [first, first + out.size()) of a tensor's data, without verifying them.
  void read(const ManifestTensor& tensor, std::uint64_t first, std::span<std::byte> out);
  /// Reads bytes [first, first + out.size()) of one of its files.
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out);

  /// Compares the checksum of block `block` (TensorSums), whose bytes are `bytes`. Throws
  /// FormatError naming file, tensor and bytes if it differs.
  void check_block(const ManifestTensor& tensor, std::size_t block,
                   std::span<const std::byte> bytes) const;

  /// Reads everything, or the tensors of one role, once and compares the sums. Calls `progress`
  /// with the bytes done. Throws FormatError naming file, tensor and the bytes of the first damaged
  /// block.
  void verify(const std::function<void(std::uint64_t bytes)>& progress = {},
              std::string_view role = {});
  /// Verifies every `parts`-th block, from number `part` on, for several readers that share the
  /// work.
  void verify_part_of(std::size_t part, std::size_t parts);

 private:
  void verify_block(const ManifestTensor& tensor, std::size_t block, std::span<std::byte> buffer);
  [[noreturn]] void refuse_block(const ManifestTensor& tensor, std::size_t block,
                                 std::uint64_t found) const;

  struct Files;
  std::filesystem::path folder_;
  Manifest manifest_;
  std::unique_ptr<Files> files_;
};

}  // namespace tessera

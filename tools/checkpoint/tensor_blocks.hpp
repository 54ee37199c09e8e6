#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/reader.hpp"

namespace tessera::tools {

/// Reads a tensor block by block (kChecksumBlock) and checks each block's checksum.
///
/// Errors: FormatError that names file, tensor and bytes.
class TensorBlocks {
 public:
  TensorBlocks(CheckpointReader& reader, const ManifestTensor& tensor)
      : reader_{reader}, tensor_{tensor} {}

  [[nodiscard]] std::size_t count() const noexcept { return tensor_.sums.size(); }
  /// Valid until the next call.
  [[nodiscard]] std::span<const std::byte> at(std::size_t block);

 private:
  CheckpointReader& reader_;
  const ManifestTensor& tensor_;
  std::vector<std::byte> buffer_;
};

/// Whether values of the dtype can be converted: F32, BF16 and F16 can.
[[nodiscard]] bool is_float(std::string_view dtype);
/// Converts `from` to floats in `to`, with one element for each value.
void to_floats(std::string_view dtype, std::span<const std::byte> from, std::span<float> to);
/// Writes `from`, rounded to the nearest value of the dtype, to `to`.
void from_floats(std::string_view dtype, std::span<const float> from, std::vector<std::byte>& to);

}  // namespace tessera::tools

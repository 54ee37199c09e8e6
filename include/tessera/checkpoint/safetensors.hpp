#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/atomic_file.hpp"
#include "tessera/base/shape.hpp"

namespace tessera {

/// Reads a safetensors file (8-byte little-endian header length, JSON header, raw tensors) in
/// pieces. Only the header is kept in memory.
///
/// Errors:  FormatError with path, offset and what was expected: for a missing or short file, an
///          invalid header, tensors that overlap, leave gaps or lie beyond the file, and a tensor
///          whose size does not fit its shape.
/// Threads: one at a time. Ranks open a reader each.
class SafetensorsReader {
 public:
  /// Opens the file and reads its header.
  explicit SafetensorsReader(std::filesystem::path path);

  /// One tensor of the file.
  struct Entry {
    std::string dtype;  ///< as in the file: "F32", "BF16" and "F16" can be read, others only listed
    Shape shape;        ///< the tensor's extents
    std::uint64_t first_byte = 0;  ///< the offset of its data in the file
    std::uint64_t bytes = 0;       ///< the size of its data
  };
  /// Returns the tensors of the file, by name.
  [[nodiscard]] const std::map<std::string, Entry>& entries() const noexcept { return entries_; }
  /// Returns the path of the file.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Writes elements [first, first + out.size()) of `name`, converted to fp32, to `out`. Throws
  /// FormatError if there is no such tensor or it has another dtype, and ContractError if the
  /// elements are not all in it.
  void read(const std::string& name, std::int64_t first, std::span<float> out);

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::map<std::string, Entry> entries_;
};

/// Writes a safetensors file of fp32 tensors, one after the other in the declared order.
///
/// Order:   the file appears under its name in `finish`, complete (AtomicFile). Before that, `path`
///          is untouched; without `finish`, nothing is left.
/// Memory:  the header only. Tensors are written through.
/// Errors:  Error (with path) if the disk refuses, or if the path is a folder, a link or a pipe.
///          The writer is of no further use then.
class SafetensorsWriter {
 public:
  /// The name and shape of a tensor to be written.
  struct Declared {
    std::string name;  ///< unique in the file, UTF-8
    Shape shape;       ///< the tensor's extents
  };
  /// Opens the file and writes the header. Throws ContractError if a name is empty, repeated,
  /// `__metadata__` or not UTF-8.
  SafetensorsWriter(std::filesystem::path path, std::vector<Declared> tensors);

  /// Writes the next tensor, in the declared order. Throws ContractError if its name or size
  /// differs.
  void write(std::string_view name, std::span<const float> values);
  /// Completes the file and gives it its name. Throws ContractError unless every declared tensor
  /// has been written.
  void finish();

 private:
  std::vector<Declared> tensors_;
  std::size_t next_ = 0;
  AtomicFile file_;
};

}  // namespace tessera

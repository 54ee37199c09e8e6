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

/// Reads a safetensors file (8-byte little-endian header length, JSON header, raw tensors) piece
/// by piece; memory use does not depend on the file's size.
///
/// Errors:  FormatError with path, offset and what was expected: missing or short file, header
///          that is not valid, tensors that overlap, leave gaps or leave the file, or whose size
///          is not that of their shape.
/// Threads: one at a time; each rank opens its own.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::filesystem::path path);

  struct Entry {
    std::string dtype;  ///< as written: "F32", "BF16", "F16"; others can be listed, not read
    Shape shape;
    std::uint64_t first_byte = 0;  ///< in the file
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] const std::map<std::string, Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Elements [first, first + out.size()) of `name`, converted to fp32. FormatError if there is no
  /// such tensor or its dtype is another; ContractError if the elements are not all in it.
  void read(const std::string& name, std::int64_t first, std::span<float> out);

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::map<std::string, Entry> entries_;
};

/// Writes a safetensors file of fp32 tensors, one after the other in the order declared.
///
/// Memory:  one header; tensors are written through.
/// Errors:  Error (with path) if the disk refuses, or if the name is a folder's, link's or pipe's.
///          The writer is then of no further use.
/// Order:   the file appears under its name in `finish`, complete (AtomicFile). Before that `path`
///          is untouched; without `finish` nothing is left.
class SafetensorsWriter {
 public:
  struct Declared {
    std::string name;
    Shape shape;
  };
  /// ContractError if a name is empty, repeated, `__metadata__` or not UTF-8.
  SafetensorsWriter(std::filesystem::path path, std::vector<Declared> tensors);

  /// The next tensor, in the declared order; ContractError if name or size is another.
  void write(std::string_view name, std::span<const float> values);
  /// After the last tensor.
  void finish();

 private:
  std::vector<Declared> tensors_;
  std::size_t next_ = 0;
  AtomicFile file_;
};

}  // namespace tessera

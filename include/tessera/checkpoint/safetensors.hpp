#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/atomic_file.hpp"
#include "tessera/base/shape.hpp"

namespace tessera {

namespace checkpoint {
class ReadableFiles;
}

/// Reads tensors in pieces from safetensors files (8-byte little-endian header length, JSON header,
/// raw tensors): a file alone, or several with the index NAME.safetensors.index.json that Hugging
/// Face's libraries write. Only headers are kept in memory, and a few files are open at a time.
///
/// Errors:  FormatError with path, offset and the expected content: for a missing or short file, an
///          invalid header, tensors that overlap, leave gaps or end beyond the file, a tensor whose
///          size does not fit its shape, tensors that are not in the file that an index names, and
///          files of one machine's part of a checkpoint, where other machines' bytes are zeros.
/// Threads: one thread at a time. Each rank opens a reader of its own.
class SafetensorsReader {
 public:
  /// Opens `path` and reads all headers. `path` is a safetensors file, an index (its name ends in
  /// .json), or a folder with either model.safetensors or model.safetensors.index.json.
  explicit SafetensorsReader(const std::filesystem::path& path);
  /// Closes all files.
  ~SafetensorsReader();
  /// Takes the files of another reader.
  SafetensorsReader(SafetensorsReader&& other) noexcept;
  /// Closes all files and takes those of another reader.
  SafetensorsReader& operator=(SafetensorsReader&& other) noexcept;

  /// One tensor.
  struct Entry {
    std::string dtype;  ///< "F32", "BF16" and "F16" can be read as fp32, others only as bytes
    Shape shape;        ///< the tensor's extents
    std::uint64_t first_byte = 0;     ///< the offset of its data in the file
    std::uint64_t bytes = 0;          ///< the size of its data
    std::filesystem::path file = {};  ///< the absolute path of its file
  };
  /// Returns the tensors, by name. Tensors that an index does not list are left out.
  [[nodiscard]] const std::map<std::string, Entry>& entries() const noexcept { return entries_; }
  /// Returns the path that the reader was opened with, as an absolute path.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Returns the absolute paths of all files; an index comes first.
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const noexcept { return files_; }

  /// Writes elements [first, first + out.size()) of tensor `name`, converted to fp32, to `out`.
  /// Throws FormatError if there is no such tensor or its dtype cannot be converted, and
  /// ContractError if the tensor does not have all of the elements.
  void read(const std::string& name, std::int64_t first, std::span<float> out);
  /// Writes bytes [first, first + out.size()) of the data of tensor `name`, of any dtype, to `out`.
  /// Throws FormatError if there is no such tensor, and ContractError if it does not have all of
  /// the bytes.
  void read_bytes(const std::string& name, std::uint64_t first, std::span<std::byte> out);

 private:
  void open_file(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& index);
  [[nodiscard]] const Entry& entry(const std::string& name) const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> files_;
  std::map<std::string, Entry> entries_;
  std::unique_ptr<checkpoint::ReadableFiles> open_;
};

/// Writes a safetensors file, one tensor after the other in the declared order.
///
/// Order:   the file appears under its name in `finish`, complete (AtomicFile). Before that, `path`
///          does not change; without `finish`, nothing is left behind.
/// Memory:  the header only; tensors are written at once.
/// Errors:  Error with the path if writing fails, or if the path is a folder, a link or a pipe. The
///          writer cannot be used any more then.
class SafetensorsWriter {
 public:
  /// A tensor to be written.
  struct Declared {
    std::string name;           ///< unique in the file, UTF-8
    Shape shape;                ///< the tensor's extents
    std::string dtype = "F32";  ///< the type of its elements, as safetensors calls it
  };
  /// Opens the file and writes the header. Throws ContractError if a name is empty, repeated,
  /// `__metadata__` or not UTF-8, and for an unknown dtype.
  SafetensorsWriter(std::filesystem::path path, std::vector<Declared> tensors);

  /// Writes the next tensor, in the declared order. Throws ContractError if its name, size or dtype
  /// (F32) differs.
  void write(std::string_view name, std::span<const float> values);
  /// Writes the next bytes of tensor `name`, which is the incomplete tensor or else the next in the
  /// declared order. Throws ContractError if its name or size differs.
  void write_bytes(std::string_view name, std::span<const std::byte> bytes);
  /// Completes the file and gives it its name. Throws ContractError unless every declared tensor
  /// has been written.
  void finish();

 private:
  std::vector<Declared> tensors_;
  std::size_t next_ = 0;     // the tensor that is written
  std::uint64_t wrote_ = 0;  // bytes of it
  AtomicFile file_;
};

}  // namespace tessera

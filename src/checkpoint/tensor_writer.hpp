#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/checksum.hpp"
#include "checkpoint/file_system.hpp"
#include "checkpoint/layout.hpp"

namespace tessera::checkpoint {

/// Writes tensors into the files of a layout, in any order, each rank its own ranges, and sums
/// them.
///
/// Threads: one at a time writes; another may add sums at the same time.
class TensorWriter {
 public:
  /// All of them outlive it.
  TensorWriter(const CheckpointLayout& layout, std::filesystem::path folder, FileSystem& files)
      : layout_{layout}, folder_{std::move(folder)}, files_{files} {}

  /// Sums bytes of tensor `tensor`, from `first_byte` on.
  void sum(std::size_t tensor, std::uint64_t first_byte, std::span<const std::byte> bytes);
  /// Writes bytes of tensor `tensor`, from `first_byte` on.
  void write(std::size_t tensor, std::uint64_t first_byte, std::span<const std::byte> bytes);
  /// Writes bytes of tensors that are contiguous in a file, from byte `first_byte` of the file on.
  void write_in_file(std::size_t file, std::uint64_t first_byte, std::span<const std::byte> bytes) {
    open(file).write_at(first_byte, bytes);
  }
  /// Writes the headers of all files and the indices; one rank does this.
  void write_headers();
  /// Creates all files and indices with their sizes: bytes that no rank here writes are a hole.
  void make_files();
  /// Flushes and closes the files that this rank has written.
  void flush();

  [[nodiscard]] std::string sums() const { return sums_.text(); }

 private:
  [[nodiscard]] WritableFile& open(std::size_t file);

  const CheckpointLayout& layout_;
  std::filesystem::path folder_;
  FileSystem& files_;
  std::map<std::size_t, std::unique_ptr<WritableFile>> open_;
  SumTable sums_;
};

}  // namespace tessera::checkpoint

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tessera {

/// A file that is open for writing at any place, from any thread that has its own.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Error (with path) if the disk refuses. Where memory and file lie alike in pages of 4096 bytes,
  /// 1 MiB and more is written past the system's cache.
  virtual void write_at(std::uint64_t first, std::span<const std::byte> bytes) = 0;
  /// Returns when all that was written is on the disk.
  virtual void flush() = 0;
};

/// An empty file that tells others that its writer lives: it is locked until this object or its
/// process ends. The file stays.
class FileClaim {
 public:
  virtual ~FileClaim() = default;
};

/// The calls by which a checkpoint is written, so that tests can stop a save at each of them, fill
/// the disk, lose what was not flushed, or stand for several machines. Paths are used as they are
/// given. A link is never written through.
///
/// Errors:  Error that names the path and what the system says.
/// Threads: any.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// Returns the name of the machine. Files of equal paths are the same on one machine.
  [[nodiscard]] virtual std::string machine() const = 0;
  virtual void make_folder(const std::filesystem::path& path) = 0;  ///< exists already: no error
  /// Opens the file, makes it if it is missing, and sets its size.
  [[nodiscard]] virtual std::unique_ptr<WritableFile> open(const std::filesystem::path& path,
                                                           std::uint64_t bytes) = 0;
  /// Makes a file that is not there yet. Null if its folder has been removed, or the file taken for
  /// one whose writer is dead.
  [[nodiscard]] virtual std::unique_ptr<FileClaim> claim(const std::filesystem::path& path) = 0;
  /// Gives the file `from` a second name. False if the file system has no such links.
  [[nodiscard]] virtual bool link(const std::filesystem::path& from,
                                  const std::filesystem::path& to) = 0;
  /// Replaces a file at `to`, or an empty folder by a folder.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Flushes what a folder lists.
  virtual void flush_folder(const std::filesystem::path& path) = 0;
  /// Removes a folder if it is empty; false if it is not.
  [[nodiscard]] virtual bool remove_empty(const std::filesystem::path& path) = 0;
  /// Removes a file, or a folder and the files in it; missing: no error.
  virtual void remove_all(const std::filesystem::path& path) = 0;
};

/// The machine's own.
[[nodiscard]] FileSystem& system_files();

}  // namespace tessera

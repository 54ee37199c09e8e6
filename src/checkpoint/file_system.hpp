#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tessera::checkpoint {

/// A file open for writing at any offset, from any thread.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Throws Error (with the path) if the write fails. Where memory and file are aligned alike in
  /// pages of 4096 bytes, 1 MiB and more bypasses the system's cache.
  virtual void write_at(std::uint64_t first, std::span<const std::byte> bytes) = 0;
  /// Returns when everything written is on the disk.
  virtual void flush() = 0;
};

/// An empty file that shows others that its writer is alive: it is locked until this object or its
/// process ends. The file stays.
class FileClaim {
 public:
  virtual ~FileClaim() = default;
};

/// The calls by which a checkpoint is written, so that tests can stop a save at each of them, fill
/// the disk, lose unflushed data, or simulate several machines. Paths are used as given. Nothing is
/// written through a link.
///
/// Errors:  Error naming the path and the system's reason.
/// Threads: any.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// Returns the name of the machine. On one machine, equal paths are the same file.
  [[nodiscard]] virtual std::string machine() const = 0;
  virtual void make_folder(
      const std::filesystem::path& path) = 0;  ///< an existing folder is no error
  /// Opens the file, creates it if it is missing, and sets its size.
  [[nodiscard]] virtual std::unique_ptr<WritableFile> open(const std::filesystem::path& path,
                                                           std::uint64_t bytes) = 0;
  /// Creates a new file. Null if its folder was removed, or another process has taken the file for
  /// a dead writer's.
  [[nodiscard]] virtual std::unique_ptr<FileClaim> claim(const std::filesystem::path& path) = 0;
  /// Gives the file `from` a second name. Returns false if the file system has no hard links.
  [[nodiscard]] virtual bool link(const std::filesystem::path& from,
                                  const std::filesystem::path& to) = 0;
  /// Replaces a file at `to`, or an empty folder by a folder.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Flushes a folder's list of entries.
  virtual void flush_folder(const std::filesystem::path& path) = 0;
  /// Removes a folder if it is empty; returns false if it is not.
  [[nodiscard]] virtual bool remove_empty(const std::filesystem::path& path) = 0;
  /// Removes a file, or a folder and the files in it; a missing one is no error.
  virtual void remove_all(const std::filesystem::path& path) = 0;
  /// The bytes that can still be written to the file system of a folder; empty if it does not say.
  [[nodiscard]] virtual std::optional<std::uint64_t> free_bytes(
      const std::filesystem::path& folder) = 0;
};

/// The machine's own file system.
[[nodiscard]] FileSystem& system_files();

}  // namespace tessera::checkpoint

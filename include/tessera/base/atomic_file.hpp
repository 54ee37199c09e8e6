#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace tessera {

/// A file that appears under its name complete, or not at all.
///
/// Bytes go to a temporary file in the same folder, NAME.MACHINE-RANDOM.partial. It is created
/// exclusively, so that two writers of one name never share a file; the last to finish wins. The
/// folder is held open: a relative path, or a folder that is a link, keeps its meaning even if the
/// working directory or the link changes. The new file takes over the permissions of the file that
/// it replaces.
///
/// Order:   the file at the name does not change before `finish`. A writer that is destroyed
///          without `finish` leaves nothing behind.
/// Errors:  Error with the path and what failed. The constructor refuses a name that is a link, a
///          folder, a pipe or a device, a file that is write-protected, and a folder that is
///          missing or not writable. After an error the temporary file is gone. `write` and
///          `finish` throw ContractError after an error and after `finish`.
/// Crashes: the next writer of the same name on the same machine removes the temporary file of a
///          writer that was killed. Each file is locked (flock) as long as its writer lives; on
///          file systems without locks nothing is removed.
/// Threads: one thread at a time.
class AtomicFile {
 public:
  /// Creates the temporary file for `path`.
  explicit AtomicFile(std::filesystem::path path);
  /// Removes the temporary file unless `finish` has given it its name.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes`.
  void write(std::span<const std::byte> bytes);
  /// Flushes the file, gives it its name, flushes the folder and closes both. If only the flush of
  /// the folder or the closing fails, the new file already exists under its name.
  void finish();
  /// Returns whether the file can be written to: false after `finish` or an error.
  [[nodiscard]] bool is_open() const noexcept { return file_ >= 0; }

 private:
  void open_folder();
  void check_target();
  void create();
  [[nodiscard]] bool create_as(const std::string& name);
  void remove_left_behind() const;
  void discard() noexcept;
  [[noreturn]] void fail(const char* what);

  std::filesystem::path path_;
  std::string name_;     // in the folder
  std::string partial_;  // the temporary file's, in the folder; empty if there is none
  unsigned permissions_ = 0;
  bool replaces_ = false;
  int folder_ = -1;
  int file_ = -1;
};

}  // namespace tessera

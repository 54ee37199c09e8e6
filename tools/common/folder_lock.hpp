#pragma once

#include <filesystem>

#include "tools/common/descriptor.hpp"

namespace tessera::tools {

/// Keeps other runs of the command out of a folder that this run writes to. It holds a lock (flock)
/// on the file .tessera.lock in the folder; the lock ends with the process, and the destructor
/// removes the file. The file of a killed run locks nothing. A folder with several names has one
/// lock.
///
/// Errors: ConfigError at once, naming the folder and the process of the other run.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// Locks the folder of that name again if the lock was lost: the folder was renamed or removed,
  /// and is then made anew, or the lock's file was removed. Returns whether it is another folder
  /// than before; false too if it cannot be locked now. ConfigError if another run has locked it.
  [[nodiscard]] bool renew();

  /// False if the file system has no locks: other runs are then not kept out.
  [[nodiscard]] bool holds() const noexcept { return file_.is_open(); }

 private:
  /// Returns false if the file belonged to a run that has just ended.
  [[nodiscard]] bool lock(const std::filesystem::path& folder);

  std::filesystem::path path_;
  Descriptor folder_;
  Descriptor file_;
};

}  // namespace tessera::tools

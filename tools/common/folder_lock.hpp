#pragma once

#include <filesystem>

#include "tools/common/descriptor.hpp"

namespace tessera::tools {

/// Keeps other runs of the command out of a folder that this one writes to, for as long as it
/// lives: a lock (flock) on the file .tessera.lock in it, which dies with the process and is
/// removed at the end. What a killed run left hinders nobody. A folder that has several names is
/// one.
///
/// Errors: ConfigError that names the folder and the other run's process, at once.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// False if the file system has no locks: nobody is kept out.
  [[nodiscard]] bool holds() const noexcept { return file_.is_open(); }

 private:
  /// False if the file was another's that has just ended.
  [[nodiscard]] bool lock(const std::filesystem::path& folder);

  Descriptor folder_;
  Descriptor file_;
};

}  // namespace tessera::tools

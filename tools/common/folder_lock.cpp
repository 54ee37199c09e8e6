#include "tools/common/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

constexpr const char* kName = ".tessera.lock";

[[noreturn]] void fail(const std::filesystem::path& folder, const std::string& reason) {
  throw ConfigError(fmt::format("--checkpoint: cannot lock the folder {} by its file {}: {}",
                                folder.string(), kName, reason));
}

std::string this_process() {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

/// The process that holds the file; empty if it has not written its name yet.
std::string holder_of(const Descriptor& file) {
  std::array<char, 512> text{};
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  return count > 0 ? std::string{text.data(), static_cast<std::size_t>(count)} : std::string{};
}

/// Another run holds the lock.
struct HeldByAnotherRun : ConfigError {
  using ConfigError::ConfigError;
};

[[noreturn]] void refuse(const std::filesystem::path& folder, const Descriptor& file) {
  const std::string holder = holder_of(file);
  throw HeldByAnotherRun(
      fmt::format("--checkpoint: another run writes to {}{}, and would replace this run's weights; "
                  "wait for its end, or give another folder",
                  folder.string(), holder.empty() ? "" : fmt::format(" ({})", holder)));
}

bool is_same(const struct stat& named, const Descriptor& file) {
  struct stat opened{};
  return ::fstat(file.get(), &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

/// Whether `file` is still the file of that name in the folder: its holder removes it at the end.
bool is_named(const Descriptor& folder, const Descriptor& file) {
  struct stat named{};
  return ::fstatat(folder.get(), kName, &named, AT_SYMLINK_NOFOLLOW) == 0 && is_same(named, file);
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder)
    : path_{folder}, folder_{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)} {
  if (!folder_.is_open()) { fail(folder, std::generic_category().message(errno)); }
  constexpr int attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (lock(folder)) { return; }
  }
  fail(folder, "another process creates and removes it again and again");
}

FolderLock::~FolderLock() {
  if (file_.is_open() && is_named(folder_, file_)) { ::unlinkat(folder_.get(), kName, 0); }
}

bool FolderLock::renew() {
  if (!holds()) { return false; }
  struct stat named{};
  const bool found = ::stat(path_.c_str(), &named) == 0;
  if (!found && errno != ENOENT) { return false; }  // unknown
  const bool same = found && is_same(named, folder_);
  if (same && is_named(folder_, file_)) { return false; }
  std::error_code failed;
  std::filesystem::create_directories(path_, failed);
  if (failed) { return false; }  // the next save says so
  try {
    FolderLock again{path_};
    std::swap(folder_, again.folder_);
    std::swap(file_, again.file_);
  } catch (const HeldByAnotherRun&) {
    throw;  // its checkpoints would be replaced
  } catch (const ConfigError&) {
    return false;  // the next call tries again, and the next save says so
  }
  return !same;
}

bool FolderLock::lock(const std::filesystem::path& folder) {
  constexpr int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file{::openat(folder_.get(), kName, flags, 0666)};
  const int error = errno;
  if (!file.is_open() &&
      error == EACCES) {  // another user's file: a lock needs no write permission
    file = Descriptor{::openat(folder_.get(), kName, (flags & ~(O_RDWR | O_CREAT)) | O_RDONLY)};
  }
  if (!file.is_open()) { fail(folder, std::generic_category().message(error)); }
  struct stat opened{};
  if (::fstat(file.get(), &opened) != 0) { fail(folder, std::generic_category().message(errno)); }
  if (!S_ISREG(opened.st_mode)) { fail(folder, "it is no file; remove it"); }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) { refuse(folder, file); }
    ::unlinkat(folder_.get(), kName, 0);  // the file system has no locks
    return true;
  }
  if (!is_named(folder_, file)) { return false; }
  const bool emptied = ::ftruncate(file.get(), 0) == 0;
  if (emptied) {
    (void)write_all(file, this_process());
  }  // with a full disk the file names no process
  file_ = std::move(file);
  return true;
}

}  // namespace tessera::tools

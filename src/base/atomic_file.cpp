#include "tessera/base/atomic_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/machine.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::string_view kEnd = ".partial";
constexpr std::size_t kDigits = 16;
// The longest name; a suffix must fit as well.
constexpr std::size_t kLongest = 200;

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

/// The common beginning of temporary files for `name` by writers on this machine since it started.
std::string beginning(const std::string& name) {
  return fmt::format("{}.{}-", name.substr(0, kLongest), machine_mark());
}

std::string new_name(const std::string& name) {
  return fmt::format("{}.{}{}", name.substr(0, kLongest), unique_mark(), kEnd);
}

bool is_partial(std::string_view entry, std::string_view begin) {
  return entry.size() == begin.size() + kDigits + kEnd.size() && entry.starts_with(begin) &&
         entry.ends_with(kEnd);
}

/// What `mode` is, if not a file; null for a file.
const char* other_than_a_file(mode_t mode) {
  if (S_ISREG(mode)) { return nullptr; }
  if (S_ISLNK(mode)) { return "a link"; }
  if (S_ISDIR(mode)) { return "a folder"; }
  return S_ISFIFO(mode) ? "a pipe" : "a device or a socket";
}

/// Flushes a file or folder. EINVAL: this file system has nothing to flush there.
bool flush(int descriptor) {
  return ::fsync(descriptor) == 0 || errno == EINVAL;
}

/// Removes `name` in `folder` unless a living process writes to it.
void remove_unless_written(int folder, const char* name) {
  constexpr int flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int file = ::openat(folder, name, flags);
  if (file < 0) { return; }
  struct stat found{};
  const bool is_file = ::fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  if (is_file && ::flock(file, LOCK_EX | LOCK_NB) == 0) { ::unlinkat(folder, name, 0); }
  ::close(file);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_{std::move(path)}, name_{path_.filename().string()} {
  open_folder();
  check_target();
  remove_left_behind();
  create();
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  expects(is_open(), "AtomicFile: write was called after the end or after an error");
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) { continue; }
    if (wrote < 0) { fail("write"); }
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

void AtomicFile::finish() {
  expects(is_open(), "AtomicFile: finish was called after the end or after an error");
  if (!flush(file_)) { fail("flush"); }
  // Open, and so locked, until it has its name: no other process may take it for a leftover.
  if (::renameat(folder_, partial_.c_str(), folder_, name_.c_str()) != 0) { fail("rename"); }
  partial_.clear();
  if (!flush(folder_)) { fail("flush the folder of"); }
  const int closed = ::close(std::exchange(file_, -1));
  if (closed != 0 && errno != EINTR) { fail("close"); }
  discard();
}

void AtomicFile::open_folder() {
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  folder_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) { fail("open the folder of"); }
}

void AtomicFile::check_target() {
  struct stat found{};
  if (name_.empty() || name_ == "." || name_ == "..") {
    errno = EISDIR;
    fail("write");
  }
  if (::fstatat(folder_, name_.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) { fail("look at"); }
    return;
  }
  if (const char* const kind = other_than_a_file(found.st_mode)) {
    discard();
    throw Error(fmt::format("cannot write {}: it is {}; remove it, or write to another name",
                            path_.string(), kind));
  }
  if (::faccessat(folder_, name_.c_str(), W_OK, AT_EACCESS) != 0) { fail("write"); }
  replaces_ = true;
  permissions_ = found.st_mode & 0777U;
}

void AtomicFile::create() {
  constexpr int attempts = 16;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (create_as(new_name(name_))) { return; }
  }
  errno = EEXIST;
  fail("create a temporary file for");
}

/// Returns false if another process has taken the name, or has taken the file for a leftover.
bool AtomicFile::create_as(const std::string& name) {
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  file_ = ::openat(folder_, name.c_str(), flags, 0666);
  if (file_ < 0 && errno == EEXIST) { return false; }
  if (file_ < 0) { fail("create a temporary file for"); }
  partial_ = name;
  const bool lost = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat made{};
  if (lost || ::fstat(file_, &made) != 0 || made.st_nlink == 0) {
    ::close(std::exchange(file_, -1));
    ::unlinkat(folder_, name.c_str(), 0);
    partial_.clear();
    return false;
  }
  // Some file systems have no permissions.
  if (replaces_) { (void)::fchmod(file_, static_cast<mode_t>(permissions_)); }
  return true;
}

void AtomicFile::remove_left_behind() const {
  const int again = ::openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) { return; }
  const auto close = [](DIR* opened) { ::closedir(opened); };
  const std::unique_ptr<DIR, decltype(close)> entries{::fdopendir(again), close};
  if (!entries) {
    ::close(again);
    return;
  }
  const std::string begin = beginning(name_);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread reads this stream
  while (const dirent* const entry = ::readdir(entries.get())) {
    if (is_partial(&entry->d_name[0], begin)) { remove_unless_written(folder_, &entry->d_name[0]); }
  }
}

void AtomicFile::discard() noexcept {
  if (!partial_.empty()) { ::unlinkat(folder_, partial_.c_str(), 0); }
  partial_.clear();
  if (file_ >= 0) { ::close(std::exchange(file_, -1)); }
  if (folder_ >= 0) { ::close(std::exchange(folder_, -1)); }
}

void AtomicFile::fail(const char* what) {
  const std::string reason = reason_of(errno);
  discard();
  throw Error(fmt::format("cannot {} {}: {}", what, path_.string(), reason));
}

}  // namespace tessera

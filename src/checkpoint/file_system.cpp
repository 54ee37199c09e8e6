#include "checkpoint/file_system.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/machine.hpp"
#include "checkpoint/file_pages.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const fs::path& path, int error = errno) {
  throw Error(
      fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error)));
}

/// A file descriptor, closed on destruction.
class Opened {
 public:
  explicit Opened(int descriptor) noexcept : descriptor_{descriptor} {}
  Opened(Opened&& other) noexcept : descriptor_{std::exchange(other.descriptor_, -1)} {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  Opened& operator=(Opened&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Opened() {
    if (descriptor_ >= 0) { ::close(descriptor_); }
  }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int get() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

/// Flushes a file or folder. EINVAL: this file system has nothing to flush there.
bool flush_to_disk(const Opened& opened) {
  return ::fsync(opened.get()) == 0 || errno == EINVAL;
}

class SystemFile final : public WritableFile {
 public:
  SystemFile(fs::path path, std::uint64_t bytes)
      : path_{std::move(path)}, file_{::open(path_.c_str(), kFlags, 0666)} {
    struct stat found{};
    if (!file_.is_open() || ::fstat(file_.get(), &found) != 0) { fail("open", path_); }
    if (!S_ISREG(found.st_mode)) {
      throw Error(fmt::format("cannot write {}: not a file", path_.string()));
    }
    // Another rank may have set it, and may be writing already.
    if (std::cmp_equal(found.st_size, bytes)) { return; }
    if (!std::in_range<off_t>(bytes)) { fail("set the size of", path_, EFBIG); }
    if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) {
      fail("set the size of", path_);
    }
  }

  // The unaligned edges of a write past the cache go through the cache.
  void write_at(std::uint64_t first, std::span<const std::byte> bytes) override {
    if (!goes_past_cache(bytes.data(), first, bytes.size()) || !open_direct()) {
      return write(file_, first, bytes);
    }
    move_by_pages(first, bytes,
                  [this](std::uint64_t at, std::span<const std::byte> part, bool past_cache) {
                    write(past_cache && direct_.is_open() ? direct_ : file_, at, part);
                  });
  }

  void flush() override {
    if (!flush_to_disk(file_)) { fail("flush", path_); }
  }

 private:
  static constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

  // Not every file system supports it.
  bool open_direct() {
    if (!asked_for_direct_) {
      asked_for_direct_ = true;
      direct_ = Opened{::open(path_.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_DIRECT)};
    }
    return direct_.is_open();
  }

  void write(Opened& file, std::uint64_t first, std::span<const std::byte> bytes) {
    const Transfer done = transfer(bytes.size(), &file == &direct_, [&](std::size_t have) {
      return ::pwrite(file.get(), bytes.data() + have, bytes.size() - have,
                      static_cast<off_t>(first + have));
    });
    if (done.end == Transfer::End::failed) {
      fail("write", path_, done.error == 0 ? ENOSPC : done.error);
    }
    if (done.end == Transfer::End::refused) {
      direct_ = Opened{-1};
      write(file_, first + done.bytes, bytes.subspan(done.bytes));
    }
  }

  fs::path path_;
  Opened file_;
  Opened direct_{-1};  // the same file, past the system's cache
  bool asked_for_direct_ = false;
};

class SystemClaim final : public FileClaim {
 public:
  explicit SystemClaim(Opened file) noexcept : file_{std::move(file)} {}

 private:
  Opened file_;
};

class SystemFiles final : public FileSystem {
 public:
  void make_folder(const fs::path& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) { return; }
    const int error = errno;
    std::error_code ignored;
    if (error != EEXIST || !fs::is_directory(path, ignored)) {
      fail("make the folder", path, error == EEXIST ? ENOTDIR : error);
    }
  }

  std::unique_ptr<WritableFile> open(const fs::path& path, std::uint64_t bytes) override {
    return std::make_unique<SystemFile>(path, bytes);
  }

  std::unique_ptr<FileClaim> claim(const fs::path& path) override {
    constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    Opened file{::open(path.c_str(), flags, 0666)};
    if (!file.is_open() && errno == ENOENT) { return {}; }
    if (!file.is_open()) { fail("create", path); }
    // On a file system without locks the claim has no effect, and does no harm.
    const bool lost = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat made{};
    if (lost || ::fstat(file.get(), &made) != 0 || made.st_nlink == 0) { return {}; }
    return std::make_unique<SystemClaim>(std::move(file));
  }

  bool link(const fs::path& from, const fs::path& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) { return true; }
    const bool none = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK ||
                      errno == EXDEV;
    if (!none) { fail("link", to); }
    return false;
  }

  void rename(const fs::path& from, const fs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) { return; }
    const std::string reason = std::generic_category().message(errno);
    throw Error(fmt::format("cannot rename {} to {}: {}", from.string(), to.string(), reason));
  }

  void flush_folder(const fs::path& path) override {
    const Opened folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder.is_open() || !flush_to_disk(folder)) { fail("flush the folder", path); }
  }

  bool remove_empty(const fs::path& path) override {
    if (::rmdir(path.c_str()) == 0) { return true; }
    if (errno != ENOTEMPTY && errno != EEXIST) { fail("remove the folder", path); }
    return false;
  }

  [[nodiscard]] std::string machine() const override { return machine_id(); }

  void remove_all(const fs::path& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) { fail("remove", path, error.value()); }
  }

  [[nodiscard]] std::optional<std::uint64_t> free_bytes(const fs::path& folder) override {
    std::error_code unknown;
    const fs::space_info space = fs::space(folder, unknown);
    if (unknown || space.capacity == 0) { return {}; }  // some network file systems say 0
    return space.available;
  }
};

}  // namespace

FileSystem& system_files() {
  static SystemFiles files;
  return files;
}

}  // namespace tessera::checkpoint

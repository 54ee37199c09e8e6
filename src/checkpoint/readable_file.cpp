#include "checkpoint/readable_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "checkpoint/file_pages.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

std::string reason_of_read() {
  return std::generic_category().message(errno);
}

}  // namespace

ReadableFile::ReadableFile(const std::filesystem::path& path) : path_{path} {
  // Non-blocking, so that opening a pipe fails instead of waiting.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    throw FormatError(fmt::format("{}: cannot open: {}", path.string(), reason_of_read()));
  }
  struct stat status{};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const std::string why = known ? "not a regular file" : reason_of_read();
    ::close(descriptor_);
    throw FormatError(fmt::format("{}: {}", path.string(), why));
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (bytes_ >= kLeastPastCache) {
    direct_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
  }
}

ReadableFile::~ReadableFile() {
  ::close(descriptor_);
  if (direct_ >= 0) { ::close(direct_); }
}

void ReadableFile::read_at(std::uint64_t first, std::span<std::byte> out) const {
  if (direct_ < 0 || !goes_past_cache(out.data(), first, out.size())) {
    return read(descriptor_, first, out);
  }
  move_by_pages(first, out, [this](std::uint64_t at, std::span<std::byte> part, bool past_cache) {
    read(past_cache ? direct_ : descriptor_, at, part);
  });
}

void ReadableFile::read(int descriptor, std::uint64_t first, std::span<std::byte> out) const {
  const Transfer done = transfer(out.size(), descriptor == direct_, [&](std::size_t have) {
    return ::pread(descriptor, out.data() + have, out.size() - have,
                   static_cast<off_t>(first + have));
  });
  switch (done.end) {
    case Transfer::End::whole:
      return;
    case Transfer::End::refused:
      return read(descriptor_, first + done.bytes, out.subspan(done.bytes));
    case Transfer::End::failed:
      break;
  }
  throw FormatError(
      fmt::format("{}: cannot read {} bytes at byte {}: {}", path_.string(), out.size(), first,
                  done.error == 0 ? "the file ends" : std::generic_category().message(done.error)));
}

std::shared_ptr<const ReadableFile> ReadableFiles::at(const std::filesystem::path& path) {
  const std::scoped_lock lock{mutex_};
  const auto found =
      std::ranges::find_if(open_, [&](const auto& file) { return file->path() == path; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front();
  }
  if (open_.size() == kMostOpen) { open_.pop_back(); }
  return open_.emplace_front(std::make_shared<const ReadableFile>(path));
}

std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const ReadableFile file{path};
  if (file.bytes() > most_bytes) {
    throw FormatError(fmt::format("{}: has {} bytes, expected at most {}", path.string(),
                                  file.bytes(), most_bytes));
  }
  std::string text(file.bytes(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span{text}));
  return text;
}

}  // namespace tessera::checkpoint

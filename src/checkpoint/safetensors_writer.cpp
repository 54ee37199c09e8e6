#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "checkpoint/safetensors_header.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {
namespace {

[[noreturn]] void throw_system(const std::filesystem::path& path, const char* what) {
  const std::string reason = std::generic_category().message(errno);
  throw FormatError(fmt::format("{}: cannot {}: {}", path.string(), what, reason));
}

void write_all(int descriptor, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) { continue; }
    if (wrote < 0) { throw_system(path, "write"); }
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

// Makes a rename last: the name is data of the folder.
void sync_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) { throw_system(folder, "open the folder"); }
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  // EINVAL: this file system has nothing to sync in a folder.
  if (status != 0 && errno != EINVAL) { throw_system(folder, "sync the folder"); }
}

std::filesystem::path beside(const std::filesystem::path& path) {
  std::filesystem::path partial = path;
  partial += ".partial";
  return partial;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<Declared> tensors)
    : path_{std::move(path)}, partial_{beside(path_)}, tensors_{std::move(tensors)} {
  const std::string header = format_header(tensors_);
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) { throw_system(partial_, "create"); }
  write_or_discard(std::as_bytes(std::span{header}));
}

SafetensorsWriter::~SafetensorsWriter() {
  discard();
}

void SafetensorsWriter::write(std::string_view name, std::span<const float> values) {
  expects(descriptor_ >= 0, "SafetensorsWriter: write after the end or after an error");
  expects(next_ < tensors_.size(), "SafetensorsWriter: every declared tensor has been written");
  const Declared& declared = tensors_[next_];
  if (name != declared.name || std::ssize(values) != declared.shape.elems()) {
    throw ContractError(
        fmt::format("SafetensorsWriter: '{}' of {} elements was written, the next is '{}' of {}",
                    name, values.size(), declared.name, declared.shape.elems()));
  }
  write_or_discard(std::as_bytes(values));
  ++next_;
}

void SafetensorsWriter::finish() {
  expects(descriptor_ >= 0, "SafetensorsWriter: finish after the end or after an error");
  expects(next_ == tensors_.size(), "SafetensorsWriter: finish before the last tensor");
  try {
    if (::fsync(descriptor_) != 0) { throw_system(partial_, "sync"); }
    if (::close(std::exchange(descriptor_, -1)) != 0) { throw_system(partial_, "close"); }
    std::error_code failed;
    std::filesystem::rename(partial_, path_, failed);
    if (failed) {
      throw FormatError(fmt::format("{}: cannot rename '{}' to it: {}", path_.string(),
                                    partial_.string(), failed.message()));
    }
  } catch (...) {
    discard();
    throw;
  }
  finished_ = true;
  sync_folder(path_);
}

// A file that could not be written whole is of no use to anyone.
void SafetensorsWriter::write_or_discard(std::span<const std::byte> bytes) {
  try {
    write_all(descriptor_, bytes, partial_);
  } catch (...) {
    discard();
    throw;
  }
}

void SafetensorsWriter::discard() noexcept {
  if (descriptor_ >= 0) { ::close(std::exchange(descriptor_, -1)); }
  if (!finished_) { ::unlink(partial_.c_str()); }
  finished_ = true;
}

}  // namespace tessera

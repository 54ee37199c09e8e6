#include "tools/measure/checkpoints.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/world/run.hpp"
#include "tools/measure/gpt_runner.hpp"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{16} << 20;

/// A file descriptor that the destructor closes.
class File {
 public:
  File(fs::path path, int flags) : path_{std::move(path)} {
    constexpr mode_t readable = 0644;
    file_ = ::open(path_.c_str(), flags | O_CLOEXEC, readable);
    require(file_ >= 0, "open");
  }
  ~File() {
    if (file_ >= 0) { ::close(file_); }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(const std::byte* from, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t done = ::write(file_, from, bytes);
      require(done > 0, "write");
      from += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }
  void read(std::byte* to, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t done = ::read(file_, to, bytes);
      require(done > 0, "read");
      to += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }
  void flush() { require(::fsync(file_) == 0, "flush"); }
  /// Drops flushed data from the page cache, so that it is read from the disk again.
  void leave_cache() { require(::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED) == 0, "drop"); }

 private:
  void require(bool ok, const char* what) const {
    if (ok) { return; }
    throw Error{fmt::format("cannot {} {}: {}", what, path_.string(),
                            std::generic_category().message(errno))};
  }

  fs::path path_;
  int file_ = -1;
};

/// A new folder. The destructor removes it, and those that were made for it.
class Folder {
 public:
  explicit Folder(const fs::path& parent)
      : path_{fs::absolute(parent) / fmt::format("tessera-bench-{}", ::getpid())} {
    try {
      make(path_);
    } catch (const Error&) {
      remove_made();
      throw;
    }
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    remove_made();
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

 private:
  void make(const fs::path& path) {
    std::error_code failed;
    if (path.has_filename() && !fs::exists(path.parent_path(), failed)) {
      make(path.parent_path());
    }
    if (fs::create_directory(path, failed)) { made_.push_back(path); }
    if (!failed) { return; }
    throw ConfigError{
        fmt::format("--folder: cannot make the folder {}: {}; name a folder that can be written to",
                    path.string(), failed.message())};
  }
  /// The innermost first; a folder that others use stays.
  void remove_made() noexcept {
    std::error_code ignored;
    for (; !made_.empty(); made_.pop_back()) { fs::remove(made_.back(), ignored); }
  }

  fs::path path_;
  std::vector<fs::path> made_;
};

std::size_t bytes_in(const fs::path& folder) {
  std::size_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator{folder}) {
    bytes += entry.file_size();
  }
  return bytes;
}

void leave_cache(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator{folder}) {
    File{entry.path(), O_RDONLY}.leave_cache();
  }
}

/// The file of a plain program: sequential, in pieces, from one buffer.
class PlainFile {
 public:
  PlainFile(fs::path path, std::size_t bytes)
      : path_{std::move(path)}, bytes_{bytes}, piece_(kPiece, std::byte{0x5A}) {}

  void write() {
    File file{path_, O_WRONLY | O_CREAT | O_TRUNC};
    for_each_piece([&](std::size_t bytes) { file.write(piece_.data(), bytes); });
    file.flush();
  }
  void read() {
    File file{path_, O_RDONLY};
    for_each_piece([&](std::size_t bytes) { file.read(piece_.data(), bytes); });
  }
  void leave_cache() const { File{path_, O_RDONLY}.leave_cache(); }

 private:
  template <class Do>
  void for_each_piece(const Do& act) const {
    for (std::size_t at = 0; at < bytes_; at += kPiece) { act(std::min(kPiece, bytes_ - at)); }
  }

  fs::path path_;
  std::size_t bytes_;
  std::vector<std::byte> piece_;
};

template <class Act>
void time(Series& series, const Act& act) {
  const double begin = now();
  act();
  series.seconds.push_back(seconds_since(begin));
}

Comparison comparison(const char* ours, const char* plain, std::size_t bytes) {
  const auto amount = static_cast<double>(bytes);
  return {.work = Work::bytes,
          .ours = {.name = ours, .bytes = amount, .series = {}},
          .limits = {{.name = plain, .bytes = amount, .series = {}}}};
}

void measure(World& world, const StepOptions& options, const fs::path& folder,
             CheckpointTimes& times) {
  GptRunner runner{world, options, Strategy::ddp};
  runner.step();
  const fs::path saved = save(runner.model(), folder);
  times.bytes = bytes_in(saved);
  times.save = comparison("save", "write and flush one file", times.bytes);
  times.load = comparison("load", "read one file", times.bytes);
  PlainFile plain{folder / "plain", times.bytes};
  plain.write();
  for (int round = 0; round < options.rounds; ++round) {
    time(times.save.ours.series, [&] { (void)save(runner.model(), folder); });
    time(times.save.limits.front().series, [&] { plain.write(); });
    leave_cache(saved);
    time(times.load.ours.series, [&] { (void)load(runner.model(), saved); });
    plain.leave_cache();
    time(times.load.limits.front().series, [&] { plain.read(); });
  }
}

void measure(World& world, const StepOptions& options, const fs::path& folder,
             AsynchronousCost& cost) {
  GptRunner runner{world, options, Strategy::ddp};
  CheckpointerOptions saving;
  saving.folder = folder;
  saving.keep = 1;
  Checkpointer checkpointer{runner.model(), saving};
  for (int i = 0; i < kUntimedRounds; ++i) { runner.step(); }
  const ModelStateBytes state = runner.model().state_bytes();
  cost.bytes = state.parameters + state.optimizer;
  std::vector<std::byte> from(cost.bytes, std::byte{1});
  std::vector<std::byte> to(cost.bytes, std::byte{2});
  for (int round = 0; round < options.rounds; ++round) {
    time(cost.plain, [&] { runner.step(); });
    time(cost.saving, [&] {
      checkpointer.save({});
      runner.step();
    });
    checkpointer.finish();
    time(cost.copies, [&] { std::memcpy(to.data(), from.data(), from.size()); });
  }
}

template <class Result>
Result on_one_rank(const StepOptions& options, const fs::path& parent) {
  const Folder folder{parent};
  Result result;
  run_ranks(1, [&](World& world) { measure(world, options, folder.path(), result); });
  return result;
}

}  // namespace

double AsynchronousCost::waiting_part() const {
  std::vector<double> parts;
  for (std::size_t i = 0; i < plain.seconds.size(); ++i) {
    parts.push_back((saving.seconds[i] - copies.seconds[i]) / plain.seconds[i] - 1);
  }
  return median_of(std::move(parts));
}

CheckpointTimes measure_checkpoints(const StepOptions& options, const fs::path& folder) {
  return on_one_rank<CheckpointTimes>(options, folder);
}

AsynchronousCost measure_asynchronous_saves(const StepOptions& options, const fs::path& folder) {
  return on_one_rank<AsynchronousCost>(options, folder);
}

}  // namespace tessera::bench

#include "tools/train/step_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "tessera/base/error.hpp"
#include "tools/common/output_file.hpp"

namespace tessera::tools {
namespace {

/// Whether `line` is a log line of a step after `step`.
bool is_after(std::string_view line, std::int64_t step) {
  constexpr std::string_view begin = R"({"step":)";
  if (!line.starts_with(begin)) { return false; }
  std::int64_t number = 0;
  const auto [end, error] =
      std::from_chars(line.data() + begin.size(), line.data() + line.size(), number);
  return error == std::errc{} && number > step;
}

/// The number of bytes of whole lines in the log at `path` before the first line of a step after
/// `steps`.
off_t bytes_until(const std::filesystem::path& path, std::int64_t steps) {
  if (steps == 0) { return 0; }
  std::ifstream file{path, std::ios::binary};
  off_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (is_after(line, steps)) { break; }
    bytes += static_cast<off_t>(line.size()) + 1;
  }
  return bytes;
}

}  // namespace

StepLog::StepLog(std::filesystem::path path) : path_{std::move(path)} {
  open();
  if (is_file_) { lock(); }
}

StepLog::~StepLog() {
  if (made_ && !begun_) { ::unlink(path_.c_str()); }
}

void StepLog::begin(std::int64_t steps_before) {
  begun_ = true;
  // If this fails, writing the first line fails too.
  if (is_file_) { (void)!::ftruncate(file_.get(), bytes_until(path_, steps_before)); }
}

std::string StepLog::add(std::int64_t step, std::string_view line) {
  if (missing_from_) { return {}; }
  const off_t before = is_file_ ? ::lseek(file_.get(), 0, SEEK_END) : -1;
  const int error = write_all(file_, line);
  if (error == 0) { return {}; }
  if (before >= 0) { (void)!::ftruncate(file_.get(), before); }
  missing_from_ = step;
  reason_ = std::generic_category().message(error);
  return fmt::format(
      "error: --log: cannot write step {} to {}: {}; the run continues without the log\n", step,
      path_.string(), reason_);
}

std::string StepLog::complaint() const {
  if (is_complete()) { return {}; }
  return fmt::format("log in {} is incomplete: nothing from step {} on could be written ({})\n",
                     path_.string(), *missing_from_, reason_);
}

void StepLog::open() {
  is_file_ = !is_stream(path_);
  const int kept = O_APPEND | (is_file_ ? O_NOFOLLOW : 0);
  if (is_file_) { file_ = open_for_writing(path_, kept | O_CREAT | O_EXCL); }
  made_ = file_.is_open();
  if (!made_) { file_ = open_for_writing(path_, kept); }
  if (file_.is_open()) { return; }
  throw ConfigError(errno == ELOOP
                        ? fmt::format("--log: cannot write {}: it is a link; name the file itself",
                                      path_.string())
                        : fmt::format("--log: cannot write {}: {}", path_.string(),
                                      std::generic_category().message(errno)));
}

void StepLog::lock() {
  // On a file system without locks every run may write.
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) { return; }
  throw ConfigError(fmt::format(
      "--log: another run writes to {}; wait for its end, or give each run a file of its own",
      path_.string()));
}

}  // namespace tessera::tools

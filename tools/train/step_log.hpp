#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tools/common/descriptor.hpp"

namespace tessera::tools {

/// The file of --log, to which a run appends whole lines that others may follow. A lock (flock)
/// keeps the file for this run until its end.
///
/// Errors: ConfigError for a file that cannot be opened, a link, a pipe without a reader, or a file
///         that another run writes. Later failures do not end the run: the first is reported, its
///         partial line is cut off, and the log stays as it is.
class StepLog {
 public:
  /// Opens the file, and keeps its contents until begin().
  explicit StepLog(std::filesystem::path path);
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  /// Removes the file if it is new and the run did not begin.
  ~StepLog();

  /// Starts the run's log after `steps_before` steps of an earlier run. Removes lines of later
  /// steps and the partial line of a killed run; a run that starts at step 0 removes all lines.
  void begin(std::int64_t steps_before = 0);
  /// Appends the line of `step`. Returns a message for the user, once, if it cannot be written;
  /// otherwise empty.
  [[nodiscard]] std::string add(std::int64_t step, std::string_view line);
  /// The message at the end of a run if the log is incomplete; otherwise empty.
  [[nodiscard]] std::string complaint() const;
  [[nodiscard]] bool is_complete() const noexcept { return !missing_from_; }

 private:
  void open();
  void lock();

  std::filesystem::path path_;
  Descriptor file_;
  bool is_file_ = false;  // a regular file rather than a stream
  bool made_ = false;
  bool begun_ = false;
  std::optional<std::int64_t> missing_from_;
  std::string reason_;
};

}  // namespace tessera::tools

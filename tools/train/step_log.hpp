#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tools/common/descriptor.hpp"

namespace tessera::tools {

/// The file of --log: whole lines, added as a run goes on, for those who follow it. A file is this
/// run's alone (flock) until the end.
///
/// Errors: ConfigError for what cannot be opened, a link, a pipe that nobody reads, or a file that
///         another run writes. Later failures end nothing: the first is told, what was written of
///         its line is cut off, and the log stays as it is.
class StepLog {
 public:
  /// Opens, and keeps what is in the file until begin().
  explicit StepLog(std::filesystem::path path);
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;
  /// Removes the file if it is new and the run did not begin.
  ~StepLog();

  /// The run begins after `steps_before` steps of an earlier one. Lines of later steps go, and so
  /// does what a killed run has left of a line: from the beginning, all.
  void begin(std::int64_t steps_before = 0);
  /// Adds the line of `step`. What is to be told, once, if it cannot be written; empty otherwise.
  [[nodiscard]] std::string add(std::int64_t step, std::string_view line);
  /// What the end of a run says of a log that is incomplete; empty otherwise.
  [[nodiscard]] std::string complaint() const;
  [[nodiscard]] bool is_complete() const noexcept { return !missing_from_; }

 private:
  void open();
  void lock();

  std::filesystem::path path_;
  Descriptor file_;
  bool is_file_ = false;  // and no stream
  bool made_ = false;
  bool begun_ = false;
  std::optional<std::int64_t> missing_from_;
  std::string reason_;
};

}  // namespace tessera::tools

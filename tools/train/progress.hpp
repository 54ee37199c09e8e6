#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// Shows a run's progress: on a terminal a bar that is redrawn, elsewhere a plain line for every
/// tenth of the run and at least every half minute.
///
/// Threads: one at a time.
class Progress {
 public:
  enum class Output { terminal, lines };
  /// The kind of output that `file` is.
  [[nodiscard]] static Output output_of(std::FILE* file);

  /// `title` precedes each line and may be empty. `steps_before` of `steps` steps are already made.
  Progress(std::FILE* file, Output output, std::string title, std::int64_t steps,
           std::int64_t steps_before = 0);
  /// Leaves the cursor on a new line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const StepRecord& record);
  /// Prints `line` on standard error.
  void tell(std::string_view line);
  /// The same for a skipped step; does nothing if the step was applied.
  void tell_if_skipped(const StepReport& report);

 private:
  using Clock = std::chrono::steady_clock;
  void draw_bar(const StepRecord& record);
  [[nodiscard]] bool due(std::int64_t step) const;
  [[nodiscard]] std::string numbers(const StepRecord& record) const;

  std::FILE* file_;
  Output output_;
  std::string title_;
  std::int64_t steps_;
  std::int64_t steps_before_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_{};  // long ago
  bool open_ = false;
};

/// The kind of standard output in `job`. A launcher gives its processes a terminal whatever its own
/// output is, so they print lines.
[[nodiscard]] Progress::Output progress_output(const Job& job);

/// "0:07", "12:30", "3:05:00".
[[nodiscard]] std::string format_time(double seconds);

}  // namespace tessera::tools

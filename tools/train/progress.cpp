#include "tools/train/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/bytes.hpp"
#include "tools/common/progress_bar.hpp"
#include "tools/common/say.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {
std::string format_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  if (whole < 3600) { return fmt::format("{}:{:02}", whole / 60, whole % 60); }
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Output Progress::output_of(std::FILE* file) {
  return isatty(fileno(file)) != 0 ? Output::terminal : Output::lines;
}

Progress::Output progress_output(const Job& job) {
  return job.settings.comm == CommChoice::mpi ? Progress::Output::lines
                                              : Progress::output_of(stdout);
}

Progress::Progress(std::FILE* file, Output output, std::string title, std::int64_t steps,
                   std::int64_t steps_before)
    : file_{file},
      output_{output},
      title_{std::move(title)},
      steps_{steps},
      steps_before_{steps_before} {}

Progress::~Progress() {
  if (open_) { std::fputc('\n', file_); }
}

void Progress::show(const StepRecord& record) {
  if (!due(record.report.step)) { return; }
  shown_ = Clock::now();
  if (output_ == Output::terminal) {
    draw_bar(record);
  } else {
    say(fmt::format("{}step {}/{}  {}\n", title_, record.report.step, steps_, numbers(record)),
        file_);
  }
  std::fflush(file_);
}

void Progress::tell(std::string_view line) {
  if (open_) { say("\r\033[K", file_); }  // the next step draws the bar again
  open_ = false;
  std::fflush(file_);
  tools::tell(line);
}

void Progress::tell_if_skipped(const StepReport& report) {
  if (!report.skipped) { return; }
  tell(fmt::format("{}step {} skipped: the gradient is not finite (loss scale {}, next {})\n",
                   title_, report.step, report.loss_scale, report.next_loss_scale));
}

bool Progress::due(std::int64_t step) const {
  if (step == steps_before_ + 1 || step == steps_) { return true; }
  const auto waited = Clock::now() - shown_;
  if (output_ == Output::terminal) { return waited >= std::chrono::milliseconds{100}; }
  return step % std::max<std::int64_t>(steps_ / 10, 1) == 0 || waited >= std::chrono::seconds{30};
}

void Progress::draw_bar(const StepRecord& record) {
  const std::string rest = fmt::format(" {}/{}  {}", record.report.step, steps_, numbers(record));
  const std::string line =
      progress_line(file_, title_, static_cast<std::uint64_t>(record.report.step),
                    static_cast<std::uint64_t>(steps_), rest);
  say(fmt::format("\r\033[K{}", line), file_);
  open_ = true;
}

std::string Progress::numbers(const StepRecord& record) const {
  const std::int64_t done = record.report.step;
  const double spent = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double left =
      spent / static_cast<double>(done - steps_before_) * static_cast<double>(steps_ - done);
  const std::size_t peak = *std::max_element(record.peak_bytes.begin(), record.peak_bytes.end());
  return fmt::format("loss {:.4f}  {:.0f} tokens/s  peak {}  {} left{}", record.report.loss,
                     record.tokens_per_second, format_bytes(peak), format_time(left),
                     record.report.skipped ? "  (skipped: gradient not finite)" : "");
}

}  // namespace tessera::tools

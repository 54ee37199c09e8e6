#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/trace/recorder.hpp"

namespace tessera::engine {

/// Writes what the engine does into the rank's recorder; does nothing without one.
class Journal {
 public:
  explicit Journal(trace::Recorder* recorder) noexcept : recorder_{recorder} {}

  void next_step() noexcept { ++step_; }
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  [[nodiscard]] std::int64_t now() const noexcept {
    return recorder_ == nullptr ? 0 : trace::now_ns();
  }

  void issue(std::string_view what, const std::string& unit) {
    if (recorder_ == nullptr) { return; }
    recorder_->add(
        {.kind = trace::Kind::issue, .what = std::string{what}, .unit = unit, .step = step_});
  }
  /// A span on the compute stream that began at `begin_ns` and ends now.
  void computed(std::string_view what, const std::string& unit, std::int64_t begin_ns) {
    if (recorder_ == nullptr) { return; }
    recorder_->add({.kind = trace::Kind::compute,
                    .what = std::string{what},
                    .unit = unit,
                    .step = step_,
                    .begin_ns = begin_ns,
                    .end_ns = trace::now_ns()});
  }

 private:
  trace::Recorder* recorder_;
  std::int64_t step_ = 0;
};

}  // namespace tessera::engine

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/memory/tracker.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera::engine {

/// Says what the engine does: the phase to the rank's memory tracker, events and spans to its
/// recorder if it has one.
class Journal {
 public:
  Journal(MemoryTracker& memory, trace::Recorder* recorder) noexcept
      : memory_{memory}, recorder_{recorder} {}

  /// What allocations and uses of memory belong to from now on.
  void enter(trace::Phase phase, std::string_view unit) {
    phase_ = phase;
    memory_.enter(phase, unit, step_);
  }

  [[nodiscard]] trace::Phase phase() const noexcept { return phase_; }

  void next_step() {
    ++step_;
    if (recorder_ != nullptr) { recorder_->end_step(); }
  }
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  [[nodiscard]] std::int64_t now() const noexcept {
    return recorder_ == nullptr ? 0 : trace::now_ns();
  }

  void issue(std::string_view what, const std::string& unit) {
    if (recorder_ == nullptr) { return; }
    recorder_->add({.kind = trace::Kind::issue,
                    .what = std::string{what},
                    .unit = unit,
                    .step = step_,
                    .phase = std::string{to_string(phase_)}});
  }
  /// A span on the compute stream that began at `begin_ns` and ends now.
  void computed(std::string_view what, const std::string& unit, std::int64_t begin_ns) {
    if (recorder_ == nullptr) { return; }
    recorder_->add({.kind = trace::Kind::compute,
                    .what = std::string{what},
                    .unit = unit,
                    .step = step_,
                    .begin_ns = begin_ns,
                    .end_ns = trace::now_ns(),
                    .phase = std::string{to_string(phase_)},
                    .during = unit,
                    .stream = "compute"});
  }

 private:
  MemoryTracker& memory_;
  trace::Recorder* recorder_;
  trace::Phase phase_ = trace::Phase::setup;
  std::int64_t step_ = 0;
};

}  // namespace tessera::engine

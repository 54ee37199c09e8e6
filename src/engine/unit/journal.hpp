#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Reports what the engine does: the phase to the rank's memory tracker and its device's profiler,
/// events and spans to its recorder if it has one. Spans begin and end when the compute stream gets
/// there.
class Journal {
 public:
  explicit Journal(World& world) noexcept
      : device_{world.device()},
        compute_{world.compute_stream()},
        memory_{world.memory()},
        recorder_{world.recorder()} {}

  /// Allocations and uses of memory from now on belong to this phase and unit.
  void enter(trace::Phase phase, std::string_view unit) {
    phase_ = phase;
    memory_.enter(phase, unit, step_);
    device_.name_range(to_string(phase), unit);
  }

  [[nodiscard]] trace::Phase phase() const noexcept { return phase_; }

  void next_step() {
    ++step_;
    if (recorder_ != nullptr) { recorder_->end_step(); }
  }
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// The next step is the one after `step`: the model's state comes from another run.
  void continue_after(std::int64_t step) noexcept { step_ = step; }

  /// The time at which the span began, once it is known. Null if nothing is recorded.
  using Span = std::shared_ptr<std::int64_t>;
  /// Returns a span that begins when the compute stream reaches the next enqueued work.
  [[nodiscard]] Span begin_span() const {
    if (recorder_ == nullptr) { return nullptr; }
    auto began = std::make_shared<std::int64_t>(0);
    compute_.tell_time([began](std::int64_t ns) { *began = ns; });
    return began;
  }

  void issue(std::string_view what, const std::string& unit) {
    if (recorder_ == nullptr) { return; }
    recorder_->add({.kind = trace::Kind::issue,
                    .what = std::string{what},
                    .unit = unit,
                    .step = step_,
                    .phase = std::string{to_string(phase_)}});
  }
  /// Ends the span after the work enqueued so far.
  void end_span(std::string_view what, const std::string& unit, const Span& began) {
    if (recorder_ == nullptr) { return; }
    trace::Record record;
    record.kind = trace::Kind::compute;
    record.what = what;
    record.unit = unit;
    record.step = step_;
    record.phase = to_string(phase_);
    record.during = unit;
    record.stream = "compute";
    compute_.tell_time([recorder = recorder_, record, began](std::int64_t ns) {
      trace::Record done = record;
      done.begin_ns = *began;
      done.end_ns = ns;
      recorder->add(std::move(done));
    });
  }

 private:
  Device& device_;
  Stream compute_;
  MemoryTracker& memory_;
  trace::Recorder* recorder_;
  trace::Phase phase_ = trace::Phase::setup;
  std::int64_t step_ = 0;
};

}  // namespace tessera::engine

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Says what the engine does: the phase to the rank's memory tracker and to its device's profiler,
/// events and spans to its recorder if it has one. Spans begin and end when the compute stream
/// comes there.
class Journal {
 public:
  explicit Journal(World& world) noexcept
      : device_{world.device()},
        compute_{world.compute_stream()},
        memory_{world.memory()},
        recorder_{world.recorder()} {}

  /// What allocations and uses of memory belong to from now on.
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
  /// The next step is that after `step`: the model's state is that of another run.
  void continue_after(std::int64_t step) noexcept { step_ = step; }

  /// When it began, as soon as that is known. Null where nothing is recorded.
  using Span = std::shared_ptr<std::int64_t>;
  /// One that begins when the compute stream comes to what is enqueued next.
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
  /// Ends with what has been enqueued so far.
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

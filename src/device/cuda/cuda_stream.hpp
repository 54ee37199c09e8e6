#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda/cuda_capture.hpp"
#include "device/cuda/cuda_flags.hpp"
#include "device/cuda/cuda_handle.hpp"
#include "device/cuda/cuda_host_word.hpp"
#include "device/cuda/cuda_times.hpp"
#include "device/stream_state.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::cuda {

/// A mark in a stream, in a graph (see CaptureState), or in a stream of host work.
class CudaEvent final : public device::EventState {
 public:
  explicit CudaEvent(std::shared_ptr<CaptureState> capture, EventKind kind = EventKind::plain);

  void wait() override;
  [[nodiscard]] double seconds_since(const device::EventState& earlier) const override;
  /// Whether wait() would return at once. Not for an event of the graph being captured.
  [[nodiscard]] bool is_reached() const;
  /// Whether it stands for a point within the graph being captured.
  [[nodiscard]] bool is_captured() const noexcept {
    return graph_ != 0 && graph_ == capture_->current();
  }

 private:
  friend class CudaStream;
  friend class CudaHostStream;
  /// The event that stands for it outside of the graph in which it was last recorded; null if there
  /// never was one.
  [[nodiscard]] cudaEvent_t outside() const noexcept {
    return graph_ == 0 ? handle_.get() : capture_->end_of(graph_);
  }

  std::shared_ptr<CaptureState> capture_;
  EventKind kind_;
  EventHandle handle_;
  std::uint64_t graph_ = 0;        // graph in which it was last recorded; 0: none
  std::optional<HostPoint> host_;  // set if it was last recorded on a stream of host work: handle_
                                   // then stands for the device work that the stream had waited for
};

/// Checks that the device makes; the host reads the results when it waits.
class StreamChecks {
 public:
  /// The word that the device sets to 1 if the check fails. Pinned memory for words is allocated as
  /// needed.
  [[nodiscard]] std::uint32_t* add(std::string fault);
  /// Whether there are so many that the host should wait and read them.
  [[nodiscard]] bool are_many() const noexcept { return faults_.size() >= kBlock; }
  /// Throws ContractError with the first failed check's fault. Passed checks are forgotten: the
  /// stream was waited for.
  void look();

 private:
  static constexpr std::size_t kBlock = 4096;
  std::vector<PinnedFlags> blocks_;  // each of kBlock words
  std::vector<std::string> faults_;
};

/// What a library keeps with each stream that it works on (a handle, plans). It ends with the
/// stream, after its work.
class StreamExtension {
 public:
  virtual ~StreamExtension() = default;
  StreamExtension(const StreamExtension&) = delete;
  StreamExtension& operator=(const StreamExtension&) = delete;

 protected:
  StreamExtension() = default;
};

/// The error that a stream has ended with. Threads: any.
class StreamEnd {
 public:
  /// The first error stays.
  void set(std::exception_ptr error) noexcept;
  /// Throws it if there is one.
  void rethrow();

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

class CudaStream final : public device::StreamState {
 public:
  CudaStream(int ordinal, std::shared_ptr<CaptureState> capture, std::shared_ptr<CudaClock> clock,
             StreamPriority priority = StreamPriority::usual);
  ~CudaStream() override;

  void record(device::EventState& event) override;
  void wait_for(device::EventState& event) override;
  void wait() override;
  void rethrow() override;
  void call(std::function<void()> work) override;
  void tell_time(std::function<void(std::int64_t)> told) override;
  /// The same as handle(), within a graph if one is being captured.
  [[nodiscard]] void* native() noexcept override;
  void end_with(std::exception_ptr error) noexcept override;

  /// Prepares for enqueuing: makes the stream's device the calling thread's, and the stream part of
  /// a graph being captured. Throws the error of a stream that has ended.
  [[nodiscard]] cudaStream_t open();
  [[nodiscard]] cudaStream_t handle() const noexcept { return handle_.get(); }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  /// The capture state of its device.
  [[nodiscard]] const std::shared_ptr<CaptureState>& capture() const noexcept { return capture_; }
  /// Whether work enqueued now is captured.
  [[nodiscard]] bool capturing() const noexcept { return capture_->current() != 0; }
  [[nodiscard]] StreamChecks& checks() noexcept { return checks_; }
  [[nodiscard]] CudaTimes& times() noexcept { return times_; }
  /// The stream's T, a StreamExtension, made at first use; the stream's device is then the calling
  /// thread's.
  template <class T>
  [[nodiscard]] T& extension() {
    for (const auto& held : extensions_) {
      if (auto* const found = dynamic_cast<T*>(held.get())) { return *found; }
    }
    (void)open();
    extensions_.push_back(std::make_unique<T>());
    return static_cast<T&>(*extensions_.back());
  }

 private:
  void wait_for(const HostPoint& point);

  int ordinal_;
  std::shared_ptr<CaptureState> capture_;
  std::shared_ptr<CudaClock> clock_;
  // Points of host work that were waited for and may have ended with an error; the last one for
  // each stream. Declared before the handle, whose end is the end of all reads of their words.
  std::vector<HostPoint> host_points_;
  StreamHandle handle_;
  StreamChecks checks_;
  CudaTimes times_;
  std::shared_ptr<StreamEnd> end_ = std::make_shared<StreamEnd>();  // shared with calls in flight
  // Declared last, destroyed first: a watchdog may end the stream until its extension is gone.
  std::vector<std::unique_ptr<StreamExtension>> extensions_;
};

/// Throws ContractError if `stream` is not a CUDA device's.
[[nodiscard]] CudaStream& cuda_stream(Stream stream);
/// Throws ContractError if `event` is not a CUDA device's.
[[nodiscard]] CudaEvent& cuda_event(device::EventState& event);

}  // namespace tessera::cuda

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "device/cpu/cpu_stream.hpp"
#include "device/cpu/timeline.hpp"
#include "device/cuda/cuda_host_word.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::cuda {

/// Work of the host in the order of a device's streams (docs/decisions/0017-host-work-on-cuda.md).
///
///   device   gate_: waits for events | tells the worker      other streams: wait for the word
///   host                               worker_: its tasks  | writes the word
///
/// Time:    nothing waits on the thread that enqueues, nor on the driver's callback thread.
/// Errors:  as a stream's: after a task that throws, the others are skipped, and waits for them
///          end. If the device fails, a thread that waits here, or the stream's end, ends the
///          worker's waits.
class CudaHostStream final : public device::StreamState {
 public:
  CudaHostStream(int ordinal, const std::shared_ptr<CaptureState>& capture,
                 std::shared_ptr<CudaClock> clock, std::string_view name);
  ~CudaHostStream() override;
  CudaHostStream(const CudaHostStream&) = delete;
  CudaHostStream& operator=(const CudaHostStream&) = delete;

  void record(device::EventState& event) override;
  void wait_for(device::EventState& event) override;
  void wait() override;
  void rethrow() override;
  void call(std::function<void()> work) override;
  void tell_time(std::function<void(std::int64_t)> told) override;
  [[nodiscard]] void* native() noexcept override { return nullptr; }

  /// `later` waits until this stream has reached its current point.
  void precede(CudaStream& later);
  /// Later work starts when `point`, which is in no graph being captured, is reached.
  void follow(cudaEvent_t point);

 private:
  void refuse_capture() const;
  void tell_worker();

  CudaStream gate_;
  std::shared_ptr<CudaHostWord> word_;
  // How often the device has told the worker to continue. The worker itself makes no CUDA calls.
  std::shared_ptr<device::Timeline> told_ = std::make_shared<device::Timeline>();
  std::uint64_t asked_ = 0;
  CudaEvent mark_;
  device::WorkerStream worker_;  // declared last, destroyed first
};

}  // namespace tessera::cuda

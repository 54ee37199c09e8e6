#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/table.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/device.hpp"
#include "tessera/trace/work_log.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

/// A CUDA device with a compute stream that has a workspace, as a rank has them.
class Rig {
 public:
  Rig();
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  [[nodiscard]] Device& device() noexcept { return *device_; }
  [[nodiscard]] Stream stream() const noexcept { return current_; }
  [[nodiscard]] const kernels::Table& table() const noexcept { return *table_; }

  /// The work of the kernels that `enqueue` puts on the stream, by the table that planning uses.
  /// Runs nothing.
  [[nodiscard]] trace::KernelWork work_of(const std::function<void()>& enqueue);

  /// A case that runs the work of `enqueue` often enough to take kLeastSeconds, and waits once, so
  /// that the host's time for the wait is negligible. Runs the work once now, to see how long it
  /// takes. `bytes` and `flops` are those of one run.
  [[nodiscard]] Case repeated(std::string name, double bytes, double flops,
                              const std::function<void()>& enqueue) const {
    return repeated(std::move(name), bytes, flops, enqueue, stream());
  }
  /// The same on another stream.
  [[nodiscard]] static Case repeated(std::string name, double bytes, double flops,
                                     const std::function<void()>& enqueue, Stream on);

 private:
  static constexpr double kLeastSeconds = 0.02;
  static constexpr double kMostRepeats = 1000;

  std::unique_ptr<Device> device_;
  OwnedStream stream_;
  Stream current_;
  const kernels::Table* table_;
  void* workspace_ = nullptr;
};

/// A kernel and its limits, and its work by the table that planning uses.
struct KernelContest {
  Contest contest;
  trace::KernelWork work;
};

/// Normally distributed numbers on the device, shared by the closures that use them.
class Numbers {
 public:
  Numbers(Rig& rig, DType dtype, std::int64_t elems, float stddev = 1.0F);

  [[nodiscard]] Values values() const noexcept { return {memory_.get(), dtype_}; }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(memory_.get());
  }

 private:
  std::shared_ptr<void> memory_;
  DType dtype_;
};

/// `bytes` on the device, uninitialised.
[[nodiscard]] std::shared_ptr<void> device_bytes(Rig& rig, std::size_t bytes);

/// A copy of `from` on the device.
[[nodiscard]] std::shared_ptr<void> on_device(Rig& rig, std::span<const std::byte> from);
template <class T>
[[nodiscard]] std::shared_ptr<void> on_device(Rig& rig, const std::vector<T>& from) {
  return on_device(rig, std::as_bytes(std::span{from}));
}

}  // namespace tessera::bench

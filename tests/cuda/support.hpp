#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "device/stream_state.hpp"
#include "kernels/support/workspace.hpp"
#include "kernels/table.hpp"
#include "tessera/device/device.hpp"

// Tests of CUDA run against whatever module TESSERA_CUDA_MODULE names: the emulated one, or the
// real one on a machine with a GPU.
namespace tessera::test {

/// A CUDA device with a compute stream to which a workspace is lent, as a rank has them.
class CudaBench {
 public:
  explicit CudaBench(const CudaDeviceOptions& options = {})
      : device_{make_cuda_device(options)}, compute_{device_->make_compute_stream()} {
    const std::size_t bytes = kernels::stream_workspace_bytes(DeviceKind::cuda);
    workspace_ = device_->allocate(bytes);
    stream().state()->lend({workspace_, bytes});
  }
  ~CudaBench() {
    compute_ = {};
    device_->free(workspace_, kernels::stream_workspace_bytes(DeviceKind::cuda));
  }
  CudaBench(const CudaBench&) = delete;
  CudaBench& operator=(const CudaBench&) = delete;

  [[nodiscard]] Device& device() noexcept { return *device_; }
  [[nodiscard]] Stream stream() const noexcept { return compute_.get(); }

 private:
  std::unique_ptr<Device> device_;
  OwnedStream compute_;
  void* workspace_ = nullptr;
};

/// Why tests of CUDA cannot run here; empty if they can. A module that is named must be of use.
[[nodiscard]] inline std::string no_cuda() {
  static const CudaMachine machine = cuda_machine();
  if (!machine.devices.empty() || environment("TESSERA_CUDA_MODULE")) { return {}; }
  return machine.problem;
}

/// Base of the fixtures: CudaFixture<testing::TestWithParam<int>>. Skips where there is no CUDA.
template <class Base>
class CudaFixture : public Base {
 protected:
  void SetUp() override {
    if (const std::string reason = no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
    bench_ = std::make_unique<CudaBench>();
  }

  [[nodiscard]] CudaBench& bench() { return *bench_; }
  [[nodiscard]] Device& device() { return bench_->device(); }
  [[nodiscard]] Stream stream() { return bench_->stream(); }
  [[nodiscard]] static const kernels::Table& table() { return kernels::table_of(DeviceKind::cuda); }

 private:
  std::unique_ptr<CudaBench> bench_;
};
using CudaTest = CudaFixture<::testing::Test>;

/// Elements on the device, between guards that it checks at every read() and at its end. Fresh ones
/// are poisoned: every byte is 0xFF, which is a NaN of every dtype and -1 as an integer.
///
/// Starts `offset` elements after an address that is a multiple of 256: 1 is misaligned for every
/// access of more than one element.
template <class T>
class DeviceArray {
 public:
  DeviceArray(CudaBench& bench, std::int64_t elems, std::int64_t offset = 0)
      : bench_{bench},
        elems_{static_cast<std::size_t>(elems)},
        offset_{static_cast<std::size_t>(offset)},
        memory_{static_cast<std::byte*>(bench.device().allocate(all_bytes()))} {
    bench_.device().fill(memory_, kGuard, all_bytes(), bench_.stream());
    poison();
  }
  DeviceArray(CudaBench& bench, std::span<const T> values, std::int64_t offset = 0)
      : DeviceArray{bench, std::ssize(values), offset} {
    write(values);
  }
  DeviceArray(CudaBench& bench, const std::vector<T>& values, std::int64_t offset = 0)
      : DeviceArray{bench, std::span<const T>{values}, offset} {}
  ~DeviceArray() {
    check_guards();
    bench_.device().free(memory_, all_bytes());
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(memory_ + front_bytes()); }
  [[nodiscard]] std::int64_t elems() const noexcept { return static_cast<std::int64_t>(elems_); }

  void poison() { bench_.device().fill(data(), 0xFF, bytes(), bench_.stream()); }

  /// All elements.
  void write(std::span<const T> values) {
    ASSERT_EQ(values.size(), elems_);
    bench_.device().copy_in(data(), values.data(), bytes(), bench_.stream());
    bench_.stream().wait();
  }

  /// What the stream has left here once it is done with all that it was given.
  [[nodiscard]] std::vector<T> read() {
    check_guards();
    std::vector<T> values(elems_);
    bench_.device().copy_out(values.data(), data(), bytes(), bench_.stream());
    bench_.stream().wait();
    return values;
  }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr unsigned char kGuard = 0xA5;

  [[nodiscard]] std::size_t bytes() const noexcept { return elems_ * sizeof(T); }
  [[nodiscard]] std::size_t front_bytes() const noexcept {
    return kGuardBytes + offset_ * sizeof(T);
  }
  [[nodiscard]] std::size_t all_bytes() const noexcept {
    return front_bytes() + bytes() + kGuardBytes;
  }

  void check_guards() {
    try {
      std::vector<unsigned char> all(all_bytes());
      bench_.device().copy_out(all.data(), memory_, all_bytes(), bench_.stream());
      bench_.stream().wait();
      const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
      const auto front = all.begin() + static_cast<std::ptrdiff_t>(front_bytes());
      const auto back = front + static_cast<std::ptrdiff_t>(bytes());
      EXPECT_TRUE(std::all_of(all.begin(), front, is_guard)) << "written before the array";
      EXPECT_TRUE(std::all_of(back, all.end(), is_guard)) << "written behind the array";
    } catch (const std::exception& error) {
      ADD_FAILURE() << "the guards cannot be read: " << error.what();
    }
  }

  CudaBench& bench_;
  std::size_t elems_;
  std::size_t offset_;
  std::byte* memory_;
};

}  // namespace tessera::test

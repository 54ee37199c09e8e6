#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "device/stream_state.hpp"
#include "kernels/support/workspace.hpp"
#include "kernels/table.hpp"
#include "tessera/device/device.hpp"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // expands to nothing without the sanitizer
#endif

// A device under test, of either backend, and arrays on it. TESSERA_CUDA_MODULE names the CUDA
// module: the emulated one, or the real one on a machine with a GPU.
namespace tessera::test {

/// Why CUDA tests cannot run here; empty if they can. A module that is named must load.
[[nodiscard]] inline std::string no_cuda() {
  static const CudaMachine machine = cuda_machine();
  if (!machine.devices.empty() || environment("TESSERA_CUDA_MODULE")) { return {}; }
  return machine.problem;
}

/// A device with a compute stream that has a workspace and kernels, as on a rank.
class DeviceBench {
 public:
  explicit DeviceBench(std::unique_ptr<Device> device)
      : device_{std::move(device)},
        compute_{device_->make_compute_stream()},
        workspace_bytes_{kernels::stream_workspace_bytes(device_->kind())},
        workspace_{device_->allocate(workspace_bytes_)} {
    stream().state()->lend({workspace_, workspace_bytes_});
    stream().state()->compute_with({&table()});
  }
  ~DeviceBench() {
    compute_ = {};
    device_->free(workspace_, workspace_bytes_);
  }
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  [[nodiscard]] Device& device() noexcept { return *device_; }
  [[nodiscard]] Stream stream() const noexcept { return compute_.get(); }
  [[nodiscard]] const kernels::Table& table() const { return kernels::table_of(device_->kind()); }

 private:
  std::unique_ptr<Device> device_;
  OwnedStream compute_;
  std::size_t workspace_bytes_;
  void* workspace_;
};

/// A fixture whose cases run once for each backend, their parameter. CUDA cases are skipped where
/// there is no CUDA.
class BackendTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (on_cuda() && !no_cuda().empty()) { GTEST_SKIP() << no_cuda(); }
    bench_ = std::make_unique<DeviceBench>(on_cuda() ? make_cuda_device() : make_cpu_device());
  }

  [[nodiscard]] static bool on_cuda() { return GetParam() == DeviceKind::cuda; }
  [[nodiscard]] DeviceBench& bench() { return *bench_; }
  [[nodiscard]] Device& device() { return bench_->device(); }
  [[nodiscard]] Stream stream() { return bench_->stream(); }
  [[nodiscard]] const kernels::Table& table() { return bench_->table(); }

 private:
  std::unique_ptr<DeviceBench> bench_;
};

/// Base of fixtures of CPU-only tests.
class CpuTest : public ::testing::Test {
 protected:
  [[nodiscard]] DeviceBench& bench() { return bench_; }
  [[nodiscard]] Stream stream() { return bench_.stream(); }
  [[nodiscard]] const kernels::Table& table() { return bench_.table(); }

 private:
  DeviceBench bench_{make_cpu_device()};
};

/// Every backend. ctest runs the cases "/cuda" over the emulated module, scripts/gpu_check.sh on a
/// GPU (tests/CMakeLists.txt).
inline auto backends() {
  return ::testing::Values(DeviceKind::cpu, DeviceKind::cuda);
}
/// For kernels of one backend only.
inline auto cpu_alone() {
  return ::testing::Values(DeviceKind::cpu);
}
inline auto cuda_alone() {
  return ::testing::Values(DeviceKind::cuda);
}
inline std::string backend_name(const ::testing::TestParamInfo<DeviceKind>& backend) {
  return std::string{to_string(backend.param)};
}

/// Elements on the device, between guards that are checked at every read() and on destruction.
/// Under the address sanitizer a CPU kernel that reads the guards fails too. Fresh elements are
/// poisoned: every byte is 0xFF, a NaN of every dtype and -1 as an integer.
///
/// Starts `offset` elements after a multiple of 64 bytes on a CPU, of 256 on CUDA: an offset of 1
/// is misaligned for every access wider than one element.
template <class T>
class DeviceArray {
 public:
  DeviceArray(DeviceBench& bench, std::int64_t elems, std::int64_t offset = 0)
      : bench_{bench},
        elems_{static_cast<std::size_t>(elems)},
        offset_{static_cast<std::size_t>(offset)},
        memory_{static_cast<std::byte*>(bench.device().allocate(all_bytes()))} {
    bench_.device().fill(memory_, kGuard, all_bytes(), bench_.stream());
    poison();
    forbid_guards();
  }
  DeviceArray(DeviceBench& bench, std::span<const T> values, std::int64_t offset = 0)
      : DeviceArray{bench, std::ssize(values), offset} {
    write(values);
  }
  DeviceArray(DeviceBench& bench, const std::vector<T>& values, std::int64_t offset = 0)
      : DeviceArray{bench, std::span<const T>{values}, offset} {}
  ~DeviceArray() {
    check_guards();
    allow_guards();
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

  /// Waits for the stream and returns the elements.
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

  void forbid_guards() {
#if defined(ASAN_POISON_MEMORY_REGION)
    if (bench_.device().kind() != DeviceKind::cpu) { return; }
    bench_.stream().wait();
    ASAN_POISON_MEMORY_REGION(memory_, front_bytes());
    ASAN_POISON_MEMORY_REGION(memory_ + front_bytes() + bytes(), kGuardBytes);
#endif
  }
  void allow_guards() {
#if defined(ASAN_POISON_MEMORY_REGION)
    if (bench_.device().kind() != DeviceKind::cpu) { return; }
    ASAN_UNPOISON_MEMORY_REGION(memory_, all_bytes());
#endif
  }

  void check_guards() {
    try {
      std::vector<unsigned char> all(all_bytes());
      bench_.stream().wait();
      allow_guards();
      bench_.device().copy_out(all.data(), memory_, all_bytes(), bench_.stream());
      bench_.stream().wait();
      forbid_guards();
      const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
      const auto front = all.begin() + static_cast<std::ptrdiff_t>(front_bytes());
      const auto back = front + static_cast<std::ptrdiff_t>(bytes());
      EXPECT_TRUE(std::all_of(all.begin(), front, is_guard)) << "written before the array";
      EXPECT_TRUE(std::all_of(back, all.end(), is_guard)) << "written behind the array";
    } catch (const std::exception& error) {
      ADD_FAILURE() << "the guards cannot be read: " << error.what();
    }
  }

  DeviceBench& bench_;
  std::size_t elems_;
  std::size_t offset_;
  std::byte* memory_;
};

}  // namespace tessera::test

#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "device/cuda_module.hpp"
#include "tessera/device/device.hpp"

namespace tessera::test {

/// Controls of the emulated module (tests/emulated_cuda/controls.hpp). The destructor resets them.
class Emulation {
 public:
  /// Whether the module under test is the emulated one.
  [[nodiscard]] static bool there() {
    return device::CudaModule::get().function<void()>("emulated_cuda_mend") != nullptr;
  }

  Emulation() = default;
  ~Emulation() {
    device::CudaModule::get().function<void()>("emulated_cuda_mend")();
    set_delay_us(0);
    set_multiprocessors(kMultiprocessors);
    set_others_bytes(0);
    set_callbacks(0);
    set_devices(devices_);
    set_capability(kCapability);
  }
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;

  /// The `nth` call of a CUDA function from now on fails with `error`.
  void fail(const char* call, int nth, int error) {
    device::CudaModule::get().function<void(const char*, int, int)>("emulated_cuda_fail")(call, nth,
                                                                                          error);
  }
  /// Longest random delay before each task of a stream.
  void set_delay_us(int most) {
    device::CudaModule::get().function<void(int)>("emulated_cuda_set_delay_us")(most);
  }
  /// Device memory that other processes hold.
  void set_others_bytes(std::size_t bytes) {
    device::CudaModule::get().function<void(std::size_t)>("emulated_cuda_set_others_bytes")(bytes);
  }
  /// Threads that run host functions: 1, or 0 for one per stream.
  void set_callbacks(int threads) {
    device::CudaModule::get().function<void(int)>("emulated_cuda_set_callbacks")(threads);
  }
  void set_devices(int count) {
    device::CudaModule::get().function<void(int)>("emulated_cuda_set_devices")(count);
  }
  /// Compute capability: 90 for 9.0.
  void set_capability(int capability) {
    device::CudaModule::get().function<void(int)>("emulated_cuda_set_capability")(capability);
  }
  void set_multiprocessors(int count) {
    device::CudaModule::get().function<void(int)>("emulated_cuda_set_multiprocessors")(count);
  }
  /// Number of calls of a CUDA function.
  [[nodiscard]] std::uint64_t calls(const char* call) {
    return device::CudaModule::get().function<std::uint64_t(const char*)>("emulated_cuda_calls")(
        call);
  }

  /// Copies between a device and pageable host memory.
  [[nodiscard]] std::uint64_t pageable_copies() {
    return device::CudaModule::get().function<std::uint64_t()>("emulated_cuda_pageable_copies")();
  }

  // Values of cudaError_t.
  static constexpr int kInvalidValue = 1;
  static constexpr int kMemoryAllocation = 2;
  static constexpr int kNoDevice = 100;
  static constexpr int kIllegalAddress = 700;
  static constexpr int kNotSupported = 801;
  static constexpr int kMultiprocessors = 4;

  static constexpr int kCapability = 90;

 private:
  int devices_ = static_cast<int>(cuda_machine().devices.size());
};

}  // namespace tessera::test

/// Skips a test of a state that a real device cannot be forced into.
#define TESSERA_EMULATION_ONLY()                                            \
  if (!::tessera::test::Emulation::there()) {                               \
    GTEST_SKIP() << "makes calls of CUDA fail, as the emulated module can"; \
  }                                                                         \
  static_assert(true)

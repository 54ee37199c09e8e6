#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <latch>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/resident.hpp"
#include "device/cpu/host_task.hpp"
#include "device/cpu/processor.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::cpu_device_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

class CpuDevice : public testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device();
  OwnedStream caller = device->make_compute_stream();
  OwnedStream worker = device->make_side_stream("worker");
};

TEST_F(CpuDevice, SaysWhatItIs) {
  EXPECT_EQ(device->kind(), DeviceKind::cpu);
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_TRUE(device->computes());
  EXPECT_EQ(to_string(DeviceKind::cpu), "cpu");
  EXPECT_EQ(to_string(DeviceKind::cuda), "cuda");
  EXPECT_EQ(to_string(DeviceKind::meta), "meta");
}

TEST_F(CpuDevice, MemoryStartsOnA128ByteBoundaryAndIsWritable) {
  for (const std::size_t bytes : {1U, 4U, 127U, 128U, 129U, 1'048'575U, 1'048'576U, 5'000'003U}) {
    void* const data = device->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 128, 0U) << bytes;
    std::memset(data, 1, bytes);
    device->free(data, bytes);
  }
}

TEST_F(CpuDevice, FreedLargeMemoryReturnsToTheSystem) {
  constexpr std::size_t bytes = std::size_t{96} << 20;
  for (int time = 0; time < 3; ++time) {
    void* const data = device->allocate(bytes);
    const std::size_t untouched = resident_bytes();
    std::memset(data, 1, bytes);
    EXPECT_GE(resident_bytes(), untouched + bytes) << "each time: nothing was kept";
    device->free(data, bytes);
    EXPECT_LT(resident_bytes(), untouched + bytes / 2);
  }
}

TEST_F(CpuDevice, ZeroBytesNeedNoMemory) {
  EXPECT_EQ(device->allocate(0), nullptr);
  device->free(nullptr, 0);
}

TEST_F(CpuDevice, MoreThanTheMachineHasIsRefusedInWords) {
  EXPECT_THAT([&] { (void)device->allocate(std::size_t{1} << 50); },
              ThrowsMessage<OutOfMemory>(
                  AllOf(HasSubstr("1.00 PiB"), HasSubstr("on cpu"), HasSubstr("the machine has"))));
}

TEST_F(CpuDevice, ASizeThatWouldOverflowIsRefused) {
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {most, most - 1, most - 127, most - 128, most / 2 + 1}) {
    EXPECT_THROW((void)device->allocate(bytes), OutOfMemory) << bytes;
  }
}

TEST_F(CpuDevice, MemoryMayBeFreedByAnotherThread) {
  void* const data = device->allocate(256);
  std::thread{[&] { device->free(data, 256); }}.join();
}

TEST_F(CpuDevice, CopiesAndFillsTakeTheirTurnOnTheStream) {
  std::array<unsigned char, 300> a{};
  std::array<unsigned char, 300> b{};
  std::array<unsigned char, 300> host{};
  std::iota(host.begin(), host.end(), static_cast<unsigned char>(0));
  const auto expected = host;
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  device->copy_in(a.data(), host.data(), a.size(), worker.get());
  device->copy(b.data(), a.data(), a.size(), worker.get());
  device->fill(a.data(), 0xFF, 299, worker.get());
  device->fill(host.data(), 0, host.size(), worker.get());
  device->copy_out(host.data(), b.data(), b.size(), worker.get());
  EXPECT_EQ(host, expected);  // nothing has run yet
  EXPECT_EQ(a[1], 0);
  open.count_down();
  worker.get().wait();
  EXPECT_EQ(host, expected);
  EXPECT_EQ(a[298], 0xFF);
  EXPECT_EQ(a[299], static_cast<unsigned char>(299 % 256));
}

TEST_F(CpuDevice, CopiesAndFillsOfNothingAreLegal) {
  device->copy(nullptr, nullptr, 0, caller.get());
  device->fill(nullptr, 0, 0, caller.get());
  EXPECT_NO_THROW(caller.get().wait());
}

TEST_F(CpuDevice, StreamsOutliveTheDevice) {
  int value = 0;
  device.reset();
  device::enqueue(worker.get(), [&] { value = 1; });
  worker.get().wait();
  EXPECT_EQ(value, 1);
}

TEST(Processor, AProcessorWithAllUsedFeaturesIsAccepted) {
  const std::array<device::ProcessorFeature, 3> features{
      {{"AVX2", true, true}, {"AVX-512F", false, false}, {"FMA", false, true}}};
  EXPECT_NO_THROW(device::require_processor(features));
}

TEST(Processor, AnOlderProcessorIsRefusedWithTheMissingFeaturesAndHowToRebuild) {
  const std::array<device::ProcessorFeature, 4> features{{{"AVX2", true, false},
                                                          {"FMA", true, true},
                                                          {"BMI2", true, false},
                                                          {"AVX-512F", false, false}}};
  EXPECT_THAT([&] { device::require_processor(features); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("lacks AVX2, BMI2,"),
                                               HasSubstr("-DTESSERA_ARCH=native"),
                                               Not(HasSubstr("FMA")), Not(HasSubstr("512")))));
}

TEST(Processor, ThisProcessorRunsThisBuild) {
  EXPECT_NO_THROW(device::require_processor(device::processor_features()));
}

}  // namespace
}  // namespace tessera::cpu_device_test

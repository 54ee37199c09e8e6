// The contract of a device in src/device/cuda: memory, copies, errors.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>
#include <optional>

#include "cuda/emulation.hpp"
#include "cuda/gate.hpp"
#include "cuda/support.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device_use.hpp"

namespace tessera::test::device_test {
namespace {

using ::testing::HasSubstr;

/// What `call` throws as an Error; empty if it throws none.
template <class Error, class Call>
std::string thrown(Call&& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return {};
}

std::vector<int> counted(std::size_t count, int first = 0) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Pinned memory of a device.
class PinnedInts {
 public:
  PinnedInts(Device& device, std::size_t count)
      : device_{device},
        count_{count},
        data_{static_cast<int*>(device.allocate_host(count * sizeof(int)))} {}
  ~PinnedInts() { device_.free_host(data_, count_ * sizeof(int)); }
  PinnedInts(const PinnedInts&) = delete;
  PinnedInts& operator=(const PinnedInts&) = delete;

  [[nodiscard]] std::span<int> values() const { return {data_, count_}; }

 private:
  Device& device_;
  std::size_t count_;
  int* data_;
};

using CudaDeviceTest = CudaTest;

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device().kind(), DeviceKind::cuda);
  EXPECT_EQ(device().name(), "cuda:0");
  EXPECT_TRUE(device().computes());
  const CudaMachine machine = cuda_machine();
  EXPECT_EQ(machine.problem, "");
  ASSERT_FALSE(machine.devices.empty());
  EXPECT_THAT(machine.devices[0], HasSubstr("compute capability"));
  EXPECT_THAT(machine.libraries, ::testing::Contains(HasSubstr("CUDA runtime")));
}

TEST_F(CudaDeviceTest, AWrongOrdinalIsNamed) {
  for (const int ordinal : {-1, 1000}) {
    EXPECT_THAT(thrown<ConfigError>([&] { (void)make_cuda_device({ordinal}); }),
                HasSubstr(fmt::format("there is no CUDA device {}", ordinal)));
  }
}

TEST_F(CudaDeviceTest, SaysThatTheMachineHasNoDevice) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  emulation.fail("cudaGetDeviceCount", 1, Emulation::kNoDevice);
  EXPECT_THAT(
      thrown<ConfigError>([] { (void)make_cuda_device(); }),
      HasSubstr("no CUDA-capable device is detected (cudaErrorNoDevice); check the driver"));
  emulation.fail("cudaGetDeviceCount", 1, Emulation::kNoDevice);
  const CudaMachine machine = cuda_machine();
  EXPECT_TRUE(machine.devices.empty());
  EXPECT_THAT(machine.problem, HasSubstr("cudaErrorNoDevice"));
}

TEST_F(CudaDeviceTest, ADeviceThatTheModuleHasNoCodeForIsRefusedBeforeItIsEntered) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  emulation.set_capability(75);
  const std::uint64_t entered = emulation.calls("cudaMemGetInfo");
  const std::string refusal = thrown<ConfigError>([] { (void)make_cuda_device(); });
  EXPECT_THAT(refusal, HasSubstr("no code for CUDA device 0"));
  EXPECT_THAT(refusal, HasSubstr("compute capability 7.5, but for 80-real,90"));
  EXPECT_THAT(refusal, HasSubstr("-DTESSERA_CUDA_ARCHITECTURES=75-real"));
  EXPECT_EQ(emulation.calls("cudaMemGetInfo"), entered);
  const CudaMachine machine = cuda_machine();
  EXPECT_TRUE(machine.devices.empty());
  EXPECT_EQ(machine.problem, refusal);
}

TEST_F(CudaDeviceTest, MemoryIsAligned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{64} << 20U}) {
    void* const data = device().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 128, 0U);
    device().free(data, bytes);
  }
}

// Every process changes the free memory of a shared card, but not what NVML reports for this
// process.
TEST_F(CudaDeviceTest, MemoryIsCountedRegardlessOfOtherProcesses) {
  constexpr std::size_t kBytes = std::size_t{64} << 20U, kOthers = std::size_t{100} << 20U;
  const DeviceUse before = use_of(device()).value();
  if (before.of != DeviceUse::Of::process) {
    GTEST_SKIP() << "nothing tells this process's memory from that of others";
  }
  const DeviceMemory all_before = device().memory().value();
  void* const data = device().allocate(kBytes);
  std::optional<Emulation> emulation;
  if (Emulation::there()) { emulation.emplace().set_others_bytes(kOthers); }
  const DeviceUse held = use_of(device()).value();
  const DeviceMemory all_held = device().memory().value();
  EXPECT_GE(held.used_bytes, before.used_bytes + kBytes);
  EXPECT_EQ(all_held.total_bytes, all_before.total_bytes);
  device().free(data, kBytes);
  EXPECT_LE(use_of(device())->used_bytes, held.used_bytes - kBytes);
  if (!emulation) { return; }
  EXPECT_EQ(all_before.free_bytes - all_held.free_bytes, kBytes + kOthers);
  EXPECT_EQ(all_before.free_bytes - device().memory()->free_bytes, kOthers);
}

TEST_F(CudaDeviceTest, NoBytesHaveNoAddress) {
  EXPECT_EQ(device().allocate(0), nullptr);
  EXPECT_EQ(device().allocate_host(0), nullptr);
  device().free(nullptr, 0);
  device().free_host(nullptr, 0);
  int value = 7;
  device().fill(nullptr, 1, 0, stream());
  device().copy(nullptr, nullptr, 0, stream());
  device().copy_in(nullptr, &value, 0, stream());
  device().copy_out(&value, nullptr, 0, stream());
  stream().wait();
  EXPECT_EQ(value, 7);
}

TEST_F(CudaDeviceTest, TooMuchMemoryIsRefusedWithWhatIsFree) {
  constexpr std::size_t kBytes = std::size_t{1} << 50U;
  const std::string text = thrown<OutOfMemory>([&] { (void)device().allocate(kBytes); });
  EXPECT_THAT(text,
              HasSubstr(fmt::format("({} bytes) cannot be allocated on cuda:0, where ", kBytes)));
  EXPECT_THAT(text, HasSubstr("are free"));
  DeviceArray<int> array{bench(), counted(10)};  // the device still works
  EXPECT_EQ(array.read(), counted(10));
}

TEST_F(CudaDeviceTest, UnavailablePinnedMemoryIsRefused) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  emulation.fail("cudaMallocHost", 1, Emulation::kMemoryAllocation);
  EXPECT_THAT(thrown<OutOfMemory>([&] { (void)device().allocate_host(1000); }),
              HasSubstr("(1000 bytes) of pinned memory cannot be allocated on the host"));
  PinnedInts values{device(), 10};
  values.values()[0] = 1;
}

TEST_F(CudaDeviceTest, CopiesEverySizeInAndOut) {
  for (const std::size_t count :
       {1U, 31U, 257U, 65536U, 65537U, 100003U, 262144U, 262145U, 700001U}) {
    const std::vector<int> values = counted(count);
    DeviceArray<int> array{bench(), values, 1};
    EXPECT_EQ(array.read(), values) << count;
  }
}

TEST_F(CudaDeviceTest, CopiesBetweenDeviceArrays) {
  DeviceArray<int> from{bench(), counted(1001), 1};
  DeviceArray<int> to{bench(), 1001, 2};
  device().copy(to.data(), from.data(), 1001 * sizeof(int), stream());
  EXPECT_EQ(to.read(), counted(1001));
}

TEST_F(CudaDeviceTest, FillsBytes) {
  DeviceArray<unsigned char> array{bench(), 1001, 3};
  device().fill(array.data(), 0x5A, 1001, stream());
  EXPECT_EQ(array.read(), std::vector<unsigned char>(1001, 0x5A));
}

TEST_F(CudaDeviceTest, TheSourceOfASmallCopyIsFreeOnReturn) {
  DeviceArray<int> array{bench(), 1000};
  Gate gate{stream()};
  std::vector<int> values = counted(1000);
  device().copy_in(array.data(), values.data(), 4000, stream());
  std::fill(values.begin(), values.end(), -1);
  gate.open();
  EXPECT_EQ(array.read(), counted(1000));
}

TEST_F(CudaDeviceTest, MoreArraysThanCanBeInFlightArriveWhole) {
  constexpr std::size_t kArrays = 40;
  constexpr std::size_t kCount = 100'000;  // two pieces each
  DeviceArray<int> array{bench(), kArrays * kCount};
  std::vector<int> values;
  for (std::size_t i = 0; i < kArrays; ++i) {
    values = counted(kCount, static_cast<int>(i * kCount));
    device().copy_in(array.data() + i * kCount, values.data(), kCount * sizeof(int), stream());
  }
  EXPECT_EQ(array.read(), counted(kArrays * kCount));
}

TEST_F(CudaDeviceTest, SmallCopiesAreNotWaitedForWhileTheDeviceIsBehind) {
  constexpr int kArrays = 30;
  DeviceArray<int> numbers{bench(), kArrays};
  Gate gate{stream()};
  for (int i = 0; i < kArrays; ++i) {
    device().copy_in(numbers.data() + i, &i, sizeof i, stream());
  }
  gate.open();
  EXPECT_EQ(numbers.read(), counted(kArrays));
}

TEST_F(CudaDeviceTest, CopiesFromPinnedMemoryAreNotWaitedFor) {
  PinnedInts values{device(), 1000};
  std::iota(values.values().begin(), values.values().end(), 0);
  DeviceArray<int> array{bench(), 1000};
  Gate gate{stream()};
  for (int i = 0; i < 100; ++i) {  // more than staging can hold in flight
    device().copy_in(array.data(), values.values().data(), 4000, stream());
  }
  gate.open();
  EXPECT_EQ(array.read(), counted(1000));
}

TEST_F(CudaDeviceTest, CopiesToPinnedMemoryAreNotWaitedFor) {
  DeviceArray<int> array{bench(), counted(1000)};
  PinnedInts values{device(), 1000};
  std::ranges::fill(values.values(), -1);
  Gate gate{stream()};
  device().copy_out(values.values().data() + 1, array.data(), 3996, stream());
  EXPECT_EQ(values.values()[1], -1);
  gate.open();
  stream().wait();
  EXPECT_EQ(values.values()[0], -1);
  EXPECT_EQ(values.values()[999], 998);
}

TEST_F(CudaDeviceTest, CopiesToOrdinaryMemoryHaveHappenedOnReturn) {
  DeviceArray<int> array{bench(), counted(1000)};
  std::vector<int> values(1000, -1);
  device().copy_out(values.data(), array.data(), 4000, stream());
  EXPECT_EQ(values, counted(1000));
}

TEST_F(CudaDeviceTest, AFilledArrayPassesItsCheck) {
  DeviceArray<unsigned char> array{bench(), 100003, 1};
  device().fill(array.data(), 0x11, 100003, stream());
  device().check_filled(array.data(), 0x11, 100003, "not filled", stream());
  device().check_filled(array.data(), 0x12, 0, "of nothing", stream());
  stream().wait();
}

TEST_F(CudaDeviceTest, OneWrongByteFailsTheCheckAndEndsTheStream) {
  std::vector<unsigned char> values(100003, 0x11);
  values.back() = 0x12;
  DeviceArray<unsigned char> array{bench(), values, 1};
  const OwnedStream other = device().make_side_stream("other");
  device().check_filled(array.data(), 0x11, 100002, "the first fault", other.get());
  device().check_filled(array.data(), 0x11, 100003, "the second fault", other.get());
  device().check_filled(array.data(), 0x13, 100003, "the third fault", other.get());
  EXPECT_EQ(thrown<ContractError>([&] { other.get().wait(); }), "the second fault");
  EXPECT_EQ(thrown<ContractError>([&] { other.get().rethrow(); }), "the second fault");
  EXPECT_EQ(thrown<ContractError>([&] { device().fill(array.data(), 0, 1, other.get()); }),
            "the second fault");
  EXPECT_EQ(array.read(), values);  // this bench's stream still works
}

TEST_F(CudaDeviceTest, TakesAnyNumberOfChecks) {
  DeviceArray<unsigned char> array{bench(), 1};
  for (int i = 0; i < 5000; ++i) {
    device().check_filled(array.data(), 0xFF, 1, fmt::format("fault {}", i), stream());
  }
  stream().wait();
  const OwnedStream other = device().make_side_stream("other");
  EXPECT_EQ(thrown<ContractError>([&] {
              for (int i = 0; i < 5000; ++i) {
                device().check_filled(array.data(), i == 10 ? 0 : 0xFF, 1,
                                      fmt::format("fault {}", i), other.get());
              }
            }),
            "fault 10");
}

TEST_F(CudaDeviceTest, AnErrorNamesItsCallAndPlace) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  DeviceArray<int> array{bench(), 1};
  emulation.fail("cudaMemsetAsync", 1, Emulation::kInvalidValue);
  const std::string text =
      thrown<DeviceError>([&] { device().fill(array.data(), 0, 4, stream()); });
  EXPECT_THAT(text, HasSubstr("cudaMemsetAsync failed: invalid argument (cudaErrorInvalidValue) at "
                              "cuda_device.cpp:"));
  device().fill(array.data(), 0, 4, stream());  // the error was of that call only
  EXPECT_EQ(array.read(), std::vector<int>{0});
}

TEST_F(CudaDeviceTest, AFailedDeviceStaysFailed) {
  TESSERA_EMULATION_ONLY();
  const OwnedStream other = device().make_side_stream("other");
  const OwnedEvent event = device().make_event();
  {
    Emulation emulation;
    emulation.fail("cudaStreamSynchronize", 1, Emulation::kIllegalAddress);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(thrown<DeviceError>([&] { other.get().wait(); }),
                  HasSubstr("cudaErrorIllegalAddress"));
    }
    EXPECT_THAT(thrown<DeviceError>([&] { other.get().rethrow(); }),
                HasSubstr("cudaErrorIllegalAddress"));
    EXPECT_THROW(event.get().wait(), DeviceError);
    EXPECT_THROW((void)device().allocate(1), DeviceError);
    EXPECT_THROW((void)device().make_event(), DeviceError);
    EXPECT_THROW((void)make_cuda_device(), Error);
  }
  EXPECT_THROW(other.get().wait(), DeviceError);  // the stream stays ended
}

TEST_F(CudaDeviceTest, StreamsOfAnotherDeviceAreRefused) {
  const auto cpu = make_cpu_device();
  const OwnedStream host = cpu->make_compute_stream();
  const OwnedEvent event = cpu->make_event();
  DeviceArray<int> array{bench(), 1};
  EXPECT_THROW(device().fill(array.data(), 0, 4, host.get()), ContractError);
  EXPECT_THROW(device().fill(array.data(), 0, 4, Stream{}), ContractError);
  EXPECT_THROW(stream().record(event.get()), ContractError);
  EXPECT_THROW(stream().wait_for(event.get()), ContractError);
}

TEST_F(CudaDeviceTest, StreamsOfTwoDevicesWaitForEachOther) {
  std::optional<Emulation> emulation;
  if (Emulation::there()) { emulation.emplace().set_devices(2); }
  if (cuda_machine().devices.size() < 2) { GTEST_SKIP() << "needs two devices"; }
  CudaBench other{{1}};
  EXPECT_EQ(other.device().name(), "cuda:1");
  const OwnedEvent written = device().make_event();
  const OwnedEvent copied = other.device().make_event();
  DeviceArray<int> from{bench(), counted(100)};
  DeviceArray<int> to{other, 100};
  {
    Gate gate{stream()};
    device().fill(from.data(), 0, sizeof(int), stream());
    stream().record(written.get());
    other.stream().wait_for(written.get());
    other.device().copy(to.data(), from.data(), 100 * sizeof(int), other.stream());
    other.stream().record(copied.get());
    stream().wait_for(copied.get());
    device().fill(from.data(), 0x77, 100 * sizeof(int), stream());
    gate.open();
    copied.get().wait();
  }
  EXPECT_EQ(to.read(), counted(100));
}

TEST_F(CudaDeviceTest, RangesCanBeNamedWithoutAProfiler) {
  device().name_range("forward", "unit");
  device().name_range("backward", "another");
  device().name_range("", "");
  device().name_range("", "");
}

}  // namespace
}  // namespace tessera::test::device_test

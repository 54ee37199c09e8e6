#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "tessera/device/device.hpp"

namespace {

std::atomic<long> allocations{0};

}  // namespace

// Counts every allocation of this program on any thread. Not inlined, because g++ 12 would see only
// one half of a new/delete pair and warn of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const data = std::malloc(bytes)) { return data; }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace tessera::steady_state_test {
namespace {

class SteadyState : public testing::Test {
 protected:
  void SetUp() override {
    const long before = allocations.load();
    ::operator delete(::operator new(64));
    if (allocations.load() == before) {
      GTEST_SKIP() << "the sanitizer has operators new of its own: nothing is counted";
    }
  }
};

TEST_F(SteadyState, StreamsDoNotAllocateOnceTheyHaveHeldTheirMost) {
  const auto device = make_cpu_device();
  const OwnedStream compute = device->make_compute_stream();
  const OwnedStream side = device->make_side_stream("side");
  const OwnedEvent there = device->make_event();
  const OwnedEvent back = device->make_event();
  long sum = 0;
  const auto step = [&] {
    for (int i = 0; i < 10; ++i) {
      device::enqueue(compute.get(), [&sum] { ++sum; });
      compute.get().record(there.get());
      side.get().wait_for(there.get());
      device::enqueue(side.get(), [&sum] { ++sum; });
      side.get().record(back.get());
      compute.get().wait_for(back.get());
    }
  };
  step();
  const long before = allocations.load();
  for (int i = 0; i < 100; ++i) { step(); }
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(sum, 2 * 10 * 101);
}

TEST_F(SteadyState, ParallelLoopsDoNotAllocate) {
  const auto device = make_cpu_device({.threads = 3});
  const OwnedStream compute = device->make_compute_stream();
  std::atomic<long> sum{0};
  const long before = allocations.load();
  for (int i = 0; i < 100; ++i) {
    device::enqueue(compute.get(), [&sum, stream = compute.get()] {
      device::parallel_for(stream, 64, 1, [&](const device::Chunk& chunk) { sum += chunk.size(); });
    });
  }
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(sum, 6400);
}

}  // namespace
}  // namespace tessera::steady_state_test

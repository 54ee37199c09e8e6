#include "device/cpu/worker_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "tessera/base/error.hpp"

namespace tessera::worker_pool_test {
namespace {

struct Machine {
  explicit Machine(int threads) : device{make_cpu_device({.threads = threads})} {}
  [[nodiscard]] Stream compute() const { return stream.get(); }
  std::unique_ptr<Device> device;
  OwnedStream stream = device->make_compute_stream();
};

TEST(WorkerPool, EveryItemIsInOneChunkThatBeginsAtAGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    const Machine machine{threads};
    for (const std::int64_t items : {0, 1, 2, 7, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> owners(static_cast<std::size_t>(items));
        device::parallel_for(machine.compute(), items, grain, [&](const device::Chunk& chunk) {
          EXPECT_EQ(chunk.first % grain, 0);
          EXPECT_GE(chunk.worker, 0);
          EXPECT_LT(chunk.worker, threads);
          for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
            ++owners[static_cast<std::size_t>(i)];
          }
        });
        for (const auto& owner : owners) { ASSERT_EQ(owner, 1) << items << " by " << grain; }
      }
    }
  }
}

// Fewer than three threads would never pass the barrier.
TEST(WorkerPool, ChunksRunAtTheSameTimeUnderDifferentNumbers) {
  const Machine machine{3};
  std::barrier meeting{3};
  std::atomic<int> workers{0};
  device::parallel_for(machine.compute(), 3, 1, [&](const device::Chunk& chunk) {
    workers |= 1 << chunk.worker;
    meeting.arrive_and_wait();
  });
  EXPECT_EQ(workers, 0b111);
}

TEST(WorkerPool, WorkersAreFewerThanTheChunks) {
  const Machine machine{8};
  for (int round = 0; round < 200; ++round) {
    std::barrier meeting{2};  // seven helpers compete for one chunk
    device::parallel_for(machine.compute(), 2, 1, [&](const device::Chunk& chunk) {
      EXPECT_LT(chunk.worker, 2);
      meeting.arrive_and_wait();
    });
  }
}

TEST(WorkerPool, WritesOfChunksAreVisibleWhenTheLoopReturns) {
  const Machine machine{4};
  std::vector<long> values(5000, 0);
  for (long round = 1; round <= 300; ++round) {
    device::parallel_for(machine.compute(), 5000, 16, [&](const device::Chunk& chunk) {
      for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
        values[static_cast<std::size_t>(i)] += round;
      }
    });
    ASSERT_THAT(values, testing::Each(round * (round + 1) / 2));
  }
}

TEST(WorkerPool, TheFirstFailingChunkIsTheTasksError) {
  const Machine machine{4};
  for (int round = 0; round < 50; ++round) {
    const OwnedStream stream = machine.device->make_compute_stream();
    const auto fails = [at = stream.get()] {
      device::parallel_for(at, 16, 1, [](const device::Chunk& chunk) {
        if (chunk.first >= 5) { throw std::runtime_error(std::to_string(chunk.first)); }
      });
    };
    try {
      device::enqueue(stream.get(), fails);
      FAIL() << "the stream swallowed it";
    } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "5"); }
    EXPECT_THROW(stream.get().rethrow(), std::runtime_error);
  }
  // The pool itself still works.
  std::atomic<int> chunks{0};
  device::parallel_for(machine.compute(), 16, 1, [&](const device::Chunk&) { ++chunks; });
  EXPECT_EQ(chunks, 16);
}

// Chunks 0 to 2 fail together, each on its own thread, so no thread is left to begin another chunk.
TEST(WorkerPool, TheFirstChunksFailureIsThrownAndLaterChunksAreSkipped) {
  const Machine machine{3};
  for (int round = 0; round < 50; ++round) {
    const OwnedStream stream = machine.device->make_compute_stream();
    std::barrier meeting{3};
    std::atomic<int> begun{0};
    try {
      device::enqueue(stream.get(), [&, at = stream.get()] {
        device::parallel_for(at, 12, 1, [&](const device::Chunk& chunk) {
          ++begun;
          if (chunk.first < 3) { meeting.arrive_and_wait(); }
          throw std::runtime_error(std::to_string(chunk.first));
        });
      });
      FAIL() << "the stream swallowed it";
    } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "0"); }
    EXPECT_EQ(begun, 3);
  }
}

TEST(WorkerPool, ALoopInsideALoopRunsOnItsOwnThread) {
  const Machine machine{3};
  std::atomic<int> inner{0};
  device::parallel_for(machine.compute(), 6, 1, [&](const device::Chunk&) {
    const std::thread::id here = std::this_thread::get_id();
    device::parallel_for(machine.compute(), 100, 1, [&](const device::Chunk& chunk) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_EQ(chunk.size(), 100);  // no other thread may take a part
      inner += static_cast<int>(chunk.size());
    });
  });
  EXPECT_EQ(inner, 600);
}

TEST(WorkerPool, ASideStreamHasItsOwnThreadUntilItBorrowsOthers) {
  const Machine machine{2};
  const OwnedStream side = machine.device->make_side_stream("side");
  EXPECT_EQ(device::threads_of(side.get()), 1);
  EXPECT_EQ(device::threads_of(machine.compute()), 2);
  device::lend_threads(*machine.device, side.get());
  EXPECT_EQ(device::threads_of(side.get()), 2);
}

// Two streams may share threads. While one uses them, the other computes on its own thread only.
TEST(WorkerPool, TwoStreamsAtOnceBothFinish) {
  const Machine machine{3};
  const OwnedStream side = machine.device->make_side_stream("side");
  device::lend_threads(*machine.device, side.get());
  std::atomic<long> sum{0};
  const auto add = [&sum](Stream stream) {
    device::parallel_for(stream, 100, 1, [&](const device::Chunk& chunk) { sum += chunk.size(); });
  };
  for (int round = 0; round < 200; ++round) {
    device::enqueue(side.get(), [&add, at = side.get()] { add(at); });
    device::enqueue(machine.compute(), [&add, at = machine.compute()] { add(at); });
  }
  side.get().wait();
  EXPECT_EQ(sum, 2 * 200 * 100);
}

TEST(WorkerPool, CopiesAndFillsOfManyThreadsAreWhole) {
  const Machine machine{3};
  constexpr std::size_t bytes = 3 * 256 * 1024 + 77;
  std::string from(bytes, '\0'), to(bytes + 1, 'x');
  for (std::size_t i = 0; i < bytes; ++i) { from[i] = static_cast<char>(i * i >> 7); }
  machine.device->copy(to.data(), from.data(), bytes, machine.compute());
  EXPECT_EQ(to, from + "x");
  machine.device->fill(to.data(), 'z', bytes, machine.compute());
  EXPECT_EQ(to, std::string(bytes, 'z') + "x");
}

TEST(WorkerPool, ThreadsOutOfRangeAreRefused) {
  for (const int threads : {-1, 0, 257}) {
    EXPECT_THROW((void)make_cpu_device({.threads = threads}), ConfigError) << threads;
  }
}

}  // namespace
}  // namespace tessera::worker_pool_test

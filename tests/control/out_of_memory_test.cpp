// Threads of the control path without memory fail the job with a message and end no process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "control/meeting.hpp"
#include "control/spoken_for.hpp"
#include "tessera/base/error.hpp"

namespace {

// Allocations of at least this size fail on threads that are not the test's own; 0: none fail.
std::atomic<std::size_t> refused{0};
thread_local bool is_own = false;

}  // namespace

// Not inlined: otherwise g++ 12 sees only half of a new/delete pair and warns of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  const std::size_t limit = refused.load(std::memory_order_relaxed);
  const bool refuses = limit > 0 && bytes >= limit && !is_own;
  if (void* const data = refuses ? nullptr : std::malloc(bytes)) { return data; }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace tessera::test::out_of_memory_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class ControlPathWithoutMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    is_own = true;
    if (!refusals_work()) { GTEST_SKIP() << "the sanitizer has operators new of its own"; }
  }
  void TearDown() override { refused = 0; }

 private:
  static bool refusals_work() {
    is_own = false;
    refused = 1;
    bool refuses = false;
    try {
      ::operator delete(::operator new(64));
    } catch (const std::bad_alloc&) { refuses = true; }
    refused = 0;
    is_own = true;
    return refuses;
  }
};

TEST_F(ControlPathWithoutMemory, TheReceivingThreadFailsTheRankAndTellsTheOthers) {
  SpokenForCoordinator coordinator;
  comm::TcpControlPlane control{place_of(1, 2, coordinator.port()), 5s, 5s};
  refused = 2048;
  const auto end = Clock::now() + 10s;
  std::string failure;
  try {
    while (Clock::now() < end) {
      (void)control.note_batch(comm::CallKind::gather_batch, "a batch");
    }
  } catch (const CommError& error) { failure = error.what(); }
  refused = 0;
  EXPECT_EQ(failure, "out of memory on the thread that receives messages of other ranks");
  EXPECT_EQ(coordinator.heard(comm::FrameType::failure), "");  // an empty text means out of memory
}

TEST_F(ControlPathWithoutMemory, ACallThatWaitsForOtherRanksEndsAtOnce) {
  SpokenForCoordinator coordinator;
  comm::TcpControlPlane control{place_of(1, 2, coordinator.port()), 20s, 20s};
  std::string failure;
  std::thread waiting{[&] {
    is_own = true;
    try {
      (void)control.exchange(comm::CallKind::reduce_text, {});
    } catch (const CommError& error) { failure = error.what(); }
  }};
  (void)coordinator.heard(comm::FrameType::text);
  refused = 2048;
  const auto begin = Clock::now();
  while (!control.failed() && Clock::now() < begin + 10s) {
    try {
      (void)control.note_batch(comm::CallKind::gather_batch, "a batch");
    } catch (const CommError& error) { EXPECT_STRNE(error.what(), ""); }
  }
  refused = 0;
  waiting.join();
  EXPECT_LT(Clock::now() - begin, 15s) << "not at the deadline";
  EXPECT_EQ(failure, "out of memory on the thread that receives messages of other ranks");
}

// Refuses either only the text of a rank that has arrived, or every allocation.
TEST_F(ControlPathWithoutMemory, TheCoordinatorEndsTheJobAndAllRanksSayWhy) {
  for (const std::size_t bytes : {200'000U, 1U}) {
    SCOPED_TRACE(bytes);
    Meeting meeting{3};
    meeting.run([bytes](comm::TcpControlPlane& control) {
      is_own = true;
      control.names().arrange([](int rank) { return "pipe " + std::to_string(rank); });
      (void)control.exchange(comm::CallKind::setup, {});
      (void)control.exchange(comm::CallKind::setup, {});
      if (control.rank() == 0) { refused = bytes; }
      (void)control.exchange(comm::CallKind::gather_text, std::string(300'000, 'x'));
    });
    refused = 0;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(meeting.error(rank), HasSubstr("out of memory on "));
      const bool coordinator_alone = bytes > 1;  // the ranks are threads of one process
      if (rank > 0 && coordinator_alone) {
        EXPECT_THAT(meeting.error(rank), HasSubstr("rank 0 (pipe 0)"));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test::out_of_memory_test

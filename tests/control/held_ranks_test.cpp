// Ranks that are held up while they submit a batch are not blamed for the calls that they miss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::held_ranks_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Rank 0 is in a batch of its pair that rank 1 does not reach; ranks 2 and 3 wait for it.
TEST(HeldRanks, TextsNameTheRankThatHoldsThemUp) {
  Meeting meeting{4};
  const std::string code = code_of(Batch{"x"}.all_reduce({nullptr, 1, DType::fp32}));
  meeting.run([&](comm::TcpControlPlane& control) {
    const int rank = control.rank();
    const int first = rank / 2 * 2;
    const comm::CallSeries pair{comm::CallKind::reduce_batch,
                                20 + static_cast<std::uint64_t>(first)};
    control.add_group(pair.group, "pair", {first, first + 1});
    const comm::CallSeries all = comm::CallKind::gather_batch;
    if (rank != 1) { (void)control.note_batch(pair, code); }
    if (rank > 0) { (void)control.note_batch(all, code); }
    if (rank == 0) { control.note_held(pair, 0); }
    (void)control.exchange(comm::CallKind::setup, {});
    if (rank > 1) {
      EXPECT_THAT(
          control.late_text(all, 0, "the call", 70ms),
          HasSubstr("waited 70 ms for rank 0, held up by rank 1, which did not call the batch "
                    "(channel pair, sequence 0); every rank"));
      EXPECT_THAT(control.late_text(all, 1, "the call", 70ms),
                  HasSubstr("waited 70 ms for ranks 1, 2, 3, which did not call it; every rank"));
    }
    (void)control.exchange(comm::CallKind::setup, {});
    if (rank == 0) { control.note_held(pair, {}); }
    (void)control.exchange(comm::CallKind::setup, {});
    if (rank > 1) {
      EXPECT_THAT(control.late_text(all, 0, "the call", 70ms),
                  HasSubstr("waited 70 ms for rank 0, which did not call it; every rank"));
    }
    (void)control.exchange(comm::CallKind::end, {});
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

/// What `control` fails with if it is late in batch 0 of `channel`, for `wait`.
std::string error_of_late(comm::TcpControlPlane& control, const comm::CallSeries& channel,
                          const comm::WaitMessage& wait) {
  try {
    control.fail_late(channel, 0, "the call", 70ms, wait);
  } catch (const CommError& error) { return error.what(); }
}

// All have issued the batch. Rank 0 knows that rank 1 sends nothing; rank 2 waits for rank 0.
TEST(HeldRanks, RanksThatOweDataAreNamedAndNotThoseThatWaitForThem) {
  for (const bool both : {false, true}) {
    Meeting meeting{3};
    const comm::CallSeries all = comm::CallKind::reduce_batch;
    meeting.run([&](comm::TcpControlPlane& control) {
      (void)control.note_batch(all, code_of(step(0, 1)));
      if (control.rank() == 0) {
        control.note_wait(all, 0, {.owed = comm::Owed::data, .ranks = {1}});
      }
      (void)control.exchange(comm::CallKind::setup, {});
      if (control.rank() != 2) { return end_run(control); }
      const std::vector<int> owing = both ? std::vector<int>{0, 1} : std::vector<int>{0};
      const std::string error =
          error_of_late(control, all, {.owed = comm::Owed::data, .ranks = owing});
      EXPECT_THAT(error, both
                             ? HasSubstr("waited 70 ms for rank 1, which called it and then moved "
                                         "no data")
                             : HasSubstr("waited 70 ms for rank 0, held up by rank 1, which called "
                                         "the batch (channel reduce, sequence 0) and then moved"));
    });
  }
}

TEST(HeldRanks, ARankThatWaitsNoLongerIsNamed) {
  Meeting meeting{2};
  const comm::CallSeries all = comm::CallKind::gather_batch;
  meeting.run([&](comm::TcpControlPlane& control) {
    (void)control.note_batch(all, code_of(step(0, 1)));
    if (control.rank() == 0) {
      control.note_wait(all, 0, {.owed = comm::Owed::data, .ranks = {1}});
      control.note_wait(all, 0, {.waits = false});
    }
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 0) { return end_run(control); }
    EXPECT_THAT(error_of_late(control, all, {.ranks = {0}}),
                HasSubstr("waited 70 ms for rank 0, which did not call it; every rank"));
  });
}

// Rank 0 exchanges texts with rank 1, which does not come; rank 2 waits for rank 0 in a batch.
TEST(HeldRanks, ARankThatWaitsInAnExchangeIsNotBlamed) {
  Meeting meeting{3};
  meeting.run([](comm::TcpControlPlane& control) {
    const comm::CallSeries pair{comm::CallKind::gather_text, 9};
    if (control.rank() < 2) { control.add_group(pair.group, "pair", {0, 1}); }
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 0) {
      EXPECT_THROW((void)control.exchange(pair, {}), CommError);
    } else if (control.rank() == 2) {
      std::this_thread::sleep_for(200ms);
      EXPECT_THAT(error_of_late(control, comm::CallKind::reduce_batch, {.ranks = {0}}),
                  HasSubstr("for rank 0, held up by rank 1, which did not call exchange (channel "
                            "pair, sequence 0)"));
    } else {
      while (!control.failed()) { std::this_thread::sleep_for(1ms); }
    }
  });
}

}  // namespace
}  // namespace tessera::test::held_ranks_test

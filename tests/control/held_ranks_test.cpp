// Ranks that are held up as they submit a batch are not blamed for calls that they do not come to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/meeting.hpp"

namespace tessera::test::held_ranks_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Rank 0 is within a batch of its pair, which rank 1 does not come to; ranks 2 and 3 wait for it.
TEST(HeldRanks, TextsNameTheRankThatHoldsThemUp) {
  Meeting meeting{4};
  const std::string code = code_of(Batch{"x"}.all_reduce({nullptr, 1, DType::fp32}));
  meeting.run([&](TcpControlPlane& control) {
    const int rank = control.rank();
    const int first = rank / 2 * 2;
    const CallSeries pair{CallKind::reduce_batch, 20 + static_cast<std::uint64_t>(first)};
    control.add_group(pair.group, "pair", {first, first + 1});
    const CallSeries all = CallKind::gather_batch;
    if (rank != 1) { (void)control.note_batch(pair, code); }
    if (rank > 0) { (void)control.note_batch(all, code); }
    if (rank == 0) { control.note_held(pair, 0); }
    (void)control.exchange(CallKind::setup, {});
    if (rank > 1) {
      EXPECT_THAT(
          control.late_text(all, 0, "the call", 70ms),
          HasSubstr("waited 70 ms for rank 0, held up by rank 1, which did not call the batch "
                    "(channel pair, sequence 0); every rank"));
      EXPECT_THAT(control.late_text(all, 1, "the call", 70ms),
                  HasSubstr("waited 70 ms for ranks 1, 2, 3, which did not call it; every rank"));
    }
    (void)control.exchange(CallKind::setup, {});
    if (rank == 0) { control.note_held(pair, {}); }
    (void)control.exchange(CallKind::setup, {});
    if (rank > 1) {
      EXPECT_THAT(control.late_text(all, 0, "the call", 70ms),
                  HasSubstr("waited 70 ms for rank 0, which did not call it; every rank"));
    }
    (void)control.exchange(CallKind::end, {});
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

}  // namespace
}  // namespace tessera::test::held_ranks_test

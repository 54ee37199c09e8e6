// Ranks that are held up as they submit a batch are not blamed for calls that they do not come to.
#include "comm/rendezvous/held_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/batch_code.hpp"
#include "rendezvous/meeting.hpp"

namespace tessera::test::held_ranks_test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Call = HeldRanks::Call;

Call call_of(std::uint64_t group) {
  return {{CallKind::gather_batch, group}, 0};
}

TEST(HeldRanks, BlamesThoseThatAreFreeAtTheEndOfAChain) {
  HeldRanks held;
  held.hold(0, call_of(1));
  held.hold(1, call_of(2));
  const auto missing = [](const Call& call) {
    return call == call_of(1) ? std::vector<int>{1} : std::vector<int>{2, 3};
  };
  EXPECT_THAT(held.free_of({0, 1, 2}), ElementsAre(2));
  const auto cause = held.cause({0}, missing);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->call, call_of(2));
  EXPECT_THAT(cause->missing, ElementsAre(2, 3));
  held.release(1, call_of(1));  // where it is not
  EXPECT_EQ(held.cause({0}, missing)->call, call_of(2));
  held.release(1, call_of(2));
  EXPECT_EQ(held.cause({0}, missing)->call, call_of(1));
  EXPECT_THAT(held.cause({0}, missing)->missing, ElementsAre(1));
}

TEST(HeldRanks, BlamesNobodyWhereRanksWaitForEachOther) {
  HeldRanks held;
  held.hold(0, call_of(1));
  held.hold(1, call_of(2));
  const auto each_other = [](const Call& call) {
    return std::vector<int>{call == call_of(1) ? 1 : 0};
  };
  EXPECT_FALSE(held.cause({0}, each_other));
  const auto nobody = [](const Call&) { return std::vector<int>{}; };
  EXPECT_FALSE(held.cause({0}, nobody));
}

std::string code_of(const Batch& batch) {
  std::string code;
  encode(batch, code);
  return code;
}

// Rank 0 is within a batch of its pair, which rank 1 does not come to; ranks 2 and 3 wait for it.
TEST(HeldRanks, TextsNameWhoHoldsThemUp) {
  Meeting meeting{4};
  const std::string code = code_of(Batch{"x"}.all_reduce({nullptr, 1, DType::fp32}));
  meeting.run([&](JobGroup& group) {
    const int rank = group.rank();
    const int first = rank / 2 * 2;
    const CallSeries pair{CallKind::reduce_batch, 20 + static_cast<std::uint64_t>(first)};
    group.add_group(pair.group, "pair", {first, first + 1});
    const CallSeries all = CallKind::gather_batch;
    if (rank != 1) { (void)group.note_batch(pair, code); }
    if (rank > 0) { (void)group.note_batch(all, code); }
    if (rank == 0) { group.note_held(pair, 0); }
    (void)group.exchange(CallKind::setup, {});
    if (rank > 1) {
      EXPECT_THAT(group.late_text(all, 0, "the call", 70ms),
                  HasSubstr("waited 70 ms for rank 0, held up as rank 1 did not make the call of "
                            "channel pair, sequence 0; every rank"));
      EXPECT_THAT(group.late_text(all, 1, "the call", 70ms),
                  HasSubstr("waited 70 ms for ranks 1, 2, 3, which did not call it; every rank"));
    }
    (void)group.exchange(CallKind::setup, {});
    if (rank == 0) { group.note_held(pair, {}); }
    (void)group.exchange(CallKind::setup, {});
    if (rank > 1) {
      EXPECT_THAT(group.late_text(all, 0, "the call", 70ms),
                  HasSubstr("waited 70 ms for rank 0, which did not call it; every rank"));
    }
    (void)group.exchange(CallKind::end, {});
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

}  // namespace
}  // namespace tessera::test::held_ranks_test

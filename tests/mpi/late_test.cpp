// What MPI's ranks say of those that do not come to a call of all ranks, once there are groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::late_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Rank 0 is held up in a group that those who wait for it know nothing of, and says so.
TEST(MpiLate, ARankThatIsHeldUpInAGroupIsNotBlamed) {
  MpiJob job{4, {test::kFailingRank, "hold-up-all", "600"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.output(),
              ContainsRegex("rank 0 waited [0-9]+ ms for rank 1, which did not call it: late, or "
                            "held up by a rank of another group; every rank"));
  EXPECT_THAT(job.output(), Not(HasSubstr("for ranks 0")));
}

TEST(MpiLate, WhereThereAreNoneItIs) {
  MpiJob job{3, {test::kFailingRank, "hold-up-none", "600"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.output(), HasSubstr(" waited 600 ms for rank 1, which did not call it; every"));
}

// Rank 0 may have files to write then: no deadline of a collective holds for that.
TEST(MpiLate, AProcessThatIsAtWorkAfterItsRunIsWaitedFor) {
  MpiJob job{3, {test::kFailingRank, "slow-exit", "600"}};
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "");
}

}  // namespace
}  // namespace tessera::test::late_test

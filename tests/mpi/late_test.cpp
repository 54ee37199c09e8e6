// What MPI's ranks say of those that do not come to a call of all ranks, once there are groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::late_test {
namespace {

using ::testing::HasSubstr;

// Rank 0 is held up in a group that the one who waits knows nothing of.
TEST(MpiLate, AMissingRankOfAllIsNotTakenForTheCauseWhereThereAreGroups) {
  MpiJob job{4, {test::kFailingRank, "hold-up-all", "600"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.output(),
              HasSubstr(" waited 600 ms for ranks 0, 1, which did not call it: late, or held up by "
                        "a rank of another group; every rank"));
}

TEST(MpiLate, WhereThereAreNoneItIs) {
  MpiJob job{3, {test::kFailingRank, "hold-up-none", "600"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.output(), HasSubstr(" waited 600 ms for rank 1, which did not call it; every"));
}

}  // namespace
}  // namespace tessera::test::late_test

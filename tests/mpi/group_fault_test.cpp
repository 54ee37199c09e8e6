// How a job of MPI's fails where its ranks are in groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::group_fault_test {
namespace {

using ::testing::HasSubstr;

// MPI tells nobody where a rank waits: who does not come may be held up itself, as rank 0 is here.
TEST(MpiGroupFault, AMissingRankOfAGroupIsNotTakenForTheCause) {
  MpiJob job{4, {test::kFailingRank, "miss-in-group", "3000"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(
      job.output(),
      HasSubstr("(channel replicas, sequence 0): rank 2 waited 3000 ms for rank 0, which did "
                "not call it: late, or held up by a rank of another group; every rank"));
}

}  // namespace
}  // namespace tessera::test::group_fault_test

// Failures of MPI jobs whose ranks are in groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::group_fault_test {
namespace {

using ::testing::HasSubstr;

// Rank 2 waits for rank 0. Rank 0 waits in another group, so far for less time, and says so.
TEST(MpiGroupFault, ARankThatIsHeldUpInAnotherGroupIsNotBlamed) {
  MpiJob job{4, {test::kFailingRank, "miss-in-group", "3000"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.output(),
              HasSubstr("all_reduce of batch \"h.3\" (channel replicas, sequence 0): rank 2 waited "
                        "3000 ms for rank 0, held up by rank 1, which did not call the batch "
                        "(channel shard reduce, sequence 0); every rank"));
}

}  // namespace
}  // namespace tessera::test::group_fault_test

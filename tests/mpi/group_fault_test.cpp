// Failures of MPI jobs whose ranks are in groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::group_fault_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Rank 2 waits for rank 0. Rank 0 waits in another group, so far for less time, and says so.
TEST(MpiGroupFault, ARankThatIsHeldUpInAnotherGroupIsNotBlamed) {
  MpiJob job{4, {test::kFailingRank, "miss-in-group", "3000"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(
      job.output(),
      ContainsRegex("\\(channel shard reduce, sequence 0\\): rank 0 waited [0-9]+ ms for rank 1, "
                    "which did not call it: late, or held up by a rank of another group; every"));
  EXPECT_THAT(job.output(), Not(HasSubstr("for rank 0")));
}

}  // namespace
}  // namespace tessera::test::group_fault_test

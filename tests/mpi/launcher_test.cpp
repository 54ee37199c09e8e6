// Requirements on mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::launcher_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The mpirun of one MPI library starts a program built with another.
TEST(MpiLauncher, AnotherLibrarysLauncherIsRefused) {
  MpiJob job{1, {"env", "OMPI_COMM_WORLD_SIZE=3", test::kFailingRank, "succeed", "60000"}};
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.output(),
              AllOf(HasSubstr("one of 3 processes (OMPI_COMM_WORLD_SIZE)"),
                    HasSubstr("sees 1; start it with the mpirun of the MPI library")));
}

}  // namespace
}  // namespace tessera::test::launcher_test

#include "device/cuda_architectures.hpp"

#include <gtest/gtest.h>

namespace tessera::cuda_architectures_test {
namespace {

TEST(CudaArchitectures, MachineCodeRunsWithinItsMajorFromItsMinorOn) {
  EXPECT_TRUE(device::has_code_for("80-real", 8, 0));
  EXPECT_TRUE(device::has_code_for("80-real", 8, 9));
  EXPECT_FALSE(device::has_code_for("86-real", 8, 0));
  EXPECT_FALSE(device::has_code_for("80-real", 9, 0));
  EXPECT_FALSE(device::has_code_for("80-real", 7, 5));
  EXPECT_TRUE(device::has_code_for("120-real", 12, 1));
}

TEST(CudaArchitectures, CodeThatTheDriverCompilesRunsOnNewerDevices) {
  EXPECT_TRUE(device::has_code_for("90-virtual", 12, 0));
  EXPECT_FALSE(device::has_code_for("90-virtual", 8, 9));
  EXPECT_TRUE(device::has_code_for("90", 10, 3)) << "both";
  EXPECT_FALSE(device::has_code_for("90", 8, 6));
}

TEST(CudaArchitectures, FamilyAndCapabilitySpecificCodeRunsOnlyThere) {
  EXPECT_TRUE(device::has_code_for("90a", 9, 0));
  EXPECT_FALSE(device::has_code_for("90a-real", 10, 0));
  EXPECT_FALSE(device::has_code_for("100a", 10, 3));
  EXPECT_TRUE(device::has_code_for("100f", 10, 3));
  EXPECT_FALSE(device::has_code_for("103f", 10, 0));
}

TEST(CudaArchitectures, OneMatchInAListIsEnough) {
  for (const char* list : {"80-real,90", "80-real;90"}) {
    EXPECT_TRUE(device::has_code_for(list, 8, 6));
    EXPECT_TRUE(device::has_code_for(list, 10, 0));
    EXPECT_FALSE(device::has_code_for(list, 7, 0));
  }
  EXPECT_TRUE(device::has_code_for("native", 7, 0));
  EXPECT_FALSE(device::has_code_for("", 9, 0));
}

}  // namespace
}  // namespace tessera::cuda_architectures_test

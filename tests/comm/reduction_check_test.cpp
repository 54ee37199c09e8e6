#include "support/reduction_check.hpp"

#include <gtest/gtest.h>

namespace tessera::test::reduction_check_test {
namespace {

std::vector<HostTensor> two_ranks(DType dtype, double a, double b) {
  return {HostTensor{dtype, 1, a}, HostTensor{dtype, 1, b}};
}

std::string problem(DType dtype, double result, SumOrder order) {
  return reduction_problem(HostTensor{dtype, 1, result}, two_ranks(dtype, 1.5, 0.25), ReduceOp::sum,
                           order);
}

TEST(ReductionCheck, TakesTheBitsInRankOrderAlone) {
  EXPECT_EQ(problem(DType::fp32, 1.75, SumOrder::ranks), "");
  EXPECT_NE(problem(DType::fp32, 1.75 + 0x1p-23, SumOrder::ranks), "");
}

TEST(ReductionCheck, TakesAnyOrdersRoundingAndNoMore) {
  EXPECT_EQ(problem(DType::fp32, 1.75 + 0x1p-23, SumOrder::any), "");
  EXPECT_NE(problem(DType::fp32, 1.75 + 0x1p-20, SumOrder::any), "");
  EXPECT_EQ(problem(DType::bf16, 1.75 + 0x1p-6, SumOrder::any), "");
  EXPECT_NE(problem(DType::bf16, 1.75 + 0x1p-4, SumOrder::any), "");
  EXPECT_NE(problem(DType::fp32, std::numeric_limits<float>::quiet_NaN(), SumOrder::any), "");
}

TEST(ReductionCheck, IntegersAndMaximaAreExactInAnyOrder) {
  EXPECT_NE(reduction_problem(HostTensor{DType::bf16, 1, 5.0}, two_ranks(DType::bf16, 3, 1),
                              ReduceOp::sum, SumOrder::any),
            "");
  EXPECT_NE(reduction_problem(HostTensor{DType::fp32, 1, 1.5 + 0x1p-23},
                              two_ranks(DType::fp32, 1.5, 0.25), ReduceOp::max, SumOrder::any),
            "");
}

TEST(ReductionCheck, ChecksTheGivenElements) {
  std::vector<HostTensor> parts{HostTensor{DType::fp32, 3, 1.5}, HostTensor{DType::fp32, 3, 1.5}};
  parts[0].set(2, 0.5);
  const HostTensor result{DType::fp32, 1, 2.0};
  EXPECT_EQ(reduction_problem(result, parts, ReduceOp::sum, SumOrder::ranks, 2), "");
  EXPECT_NE(reduction_problem(result, parts, ReduceOp::sum, SumOrder::ranks, 1), "");
}

}  // namespace
}  // namespace tessera::test::reduction_check_test

#include "kernels/attention/cudnn_rule.hpp"

#include <gtest/gtest.h>

namespace tessera::kernels::cuda::cudnn_rule_test {
namespace {

constexpr AttentionShape kGpt2{.batch = 64, .seq = 1024, .heads = 12, .head_size = 64};

TEST(CudnnRule, TakesTheSizesThatItsDocumentationSupports) {
  EXPECT_TRUE(suits_cudnn(kGpt2, DType::bf16));
  EXPECT_TRUE(suits_cudnn(kGpt2, DType::fp16));
  EXPECT_FALSE(suits_cudnn(kGpt2, DType::fp32));
  EXPECT_FALSE(suits_cudnn({1, 1, 12, 64}, DType::bf16));
  for (const std::int64_t size : {0, 4, 12, 63, 136, 256}) {
    EXPECT_FALSE(suits_cudnn({1, 64, 1, size}, DType::bf16)) << size;
  }
  EXPECT_TRUE(suits_cudnn({1, 2, 1, 8}, DType::bf16));
  EXPECT_TRUE(suits_cudnn({1, 1000, 3, 128}, DType::bf16));
}

TEST(CudnnRule, LeavesSharedKeysWindowsAndScalesToOthers) {
  AttentionShape grouped = kGpt2, window = kGpt2, scaled = kGpt2, plain = kGpt2;
  grouped.kv_heads = 4;
  window.window = 1023;
  scaled.scale = 0.125F;
  plain.kv_heads = 12;
  plain.window = 1024;
  for (const AttentionShape& shape : {grouped, window, scaled}) {
    EXPECT_FALSE(suits_cudnn(shape, DType::bf16));
    EXPECT_EQ(cudnn_whole_workspace_bytes(shape, DType::bf16), 0U);
  }
  EXPECT_TRUE(suits_cudnn(plain, DType::bf16));
}

TEST(CudnnRule, LeavesEmptyAndVeryLongSequencesToOthers) {
  EXPECT_FALSE(suits_cudnn({0, 64, 4, 64}, DType::bf16));
  EXPECT_FALSE(suits_cudnn({4, 0, 4, 64}, DType::bf16));
  EXPECT_TRUE(suits_cudnn({1, 32'640, 1, 64}, DType::bf16));
  EXPECT_FALSE(suits_cudnn({1, 32'644, 1, 64}, DType::bf16));
  EXPECT_EQ(cudnn_workspace_bytes({1, 32'644, 1, 64}, DType::bf16), 0U);
}

TEST(CudnnRule, LeavesOddLengthsThatDoNotFitAtOnceToOthers) {
  EXPECT_TRUE(suits_cudnn({1, 1023, 12, 64}, DType::bf16));
  EXPECT_FALSE(suits_cudnn({64, 1023, 12, 64}, DType::bf16));
  EXPECT_TRUE(suits_cudnn({64, 1020, 12, 64}, DType::bf16));
}

// 63 heads: gradients of 1024 x 1024 probabilities in two bytes and 1024 sums each; plus a
// mebibyte.
TEST(CudnnRule, TheWorkspaceIsThatOfTheHeadsAtATime) {
  EXPECT_EQ(cudnn_heads(kGpt2), 63);
  EXPECT_EQ(cudnn_workspace_bytes(kGpt2, DType::bf16),
            std::size_t{63} * (1024 * 1024 * 2 + 1024 * 4) + (1U << 20U));
  EXPECT_EQ(cudnn_heads({2, 100, 3, 64}), 6);
  EXPECT_EQ(cudnn_workspace_bytes(kGpt2, DType::fp32), 0U);
  for (std::int64_t seq = 2; seq < 10'000; seq += 97) {
    const std::size_t most = seq <= 8064 ? kMostCudnnBytes : kMostCudnnHeadBytes;
    EXPECT_LE(cudnn_workspace_bytes({64, seq, 32, 64}, DType::bf16), most) << seq;
  }
}

// 768 heads of 2,101,248 bytes and a mebibyte are 1.5 GiB; any smaller workspace also works.
TEST(CudnnRule, TakesAsManyHeadsAtATimeAsTheLentWorkspaceHolds) {
  const std::size_t whole = cudnn_whole_workspace_bytes(kGpt2, DType::bf16);
  EXPECT_EQ(whole, std::size_t{768} * (1024 * 1024 * 2 + 1024 * 4) + (1U << 20U));
  EXPECT_EQ(cudnn_heads_in(kGpt2, whole), 768);
  EXPECT_EQ(cudnn_heads_in(kGpt2, whole - 1), 767);
  EXPECT_EQ(cudnn_heads_in(kGpt2, 2 * whole), 768);
  EXPECT_EQ(cudnn_heads_in(kGpt2, cudnn_workspace_bytes(kGpt2, DType::bf16)), cudnn_heads(kGpt2));
  EXPECT_EQ(cudnn_heads_in(kGpt2, 0), 0);
  EXPECT_EQ(cudnn_whole_workspace_bytes(kGpt2, DType::fp32), 0U);
}

TEST(CudnnRule, TheWorkspaceCanBeSetAndHasRoomForOneHead) {
  constexpr std::size_t head = 1024 * 1024 * 2 + 1024 * 4;
  constexpr std::size_t slack = 1U << 20U;
  for (const auto& [most, heads] : {std::pair{std::size_t{0}, 1}, std::pair{slack + head, 1},
                                    std::pair{slack + 3 * head, 3}, std::pair{head << 12U, 768}}) {
    EXPECT_EQ(cudnn_heads(kGpt2, device::SumOrder::fixed, most), heads);
    EXPECT_EQ(cudnn_workspace_bytes(kGpt2, DType::bf16, device::SumOrder::fixed, most),
              slack + static_cast<std::size_t>(heads) * head);
  }
  EXPECT_TRUE(suits_cudnn(kGpt2, DType::bf16, 0));
  EXPECT_FALSE(suits_cudnn({1, 1023, 12, 64}, DType::bf16, 0)) << "not all of its heads fit";
}

// Otherwise Tessera's own kernels would compute them.
TEST(CudnnRule, LongSequencesAreTakenAHeadAtATime) {
  constexpr std::size_t slack = 1U << 20U;
  for (const std::int64_t seq : {8068, 16'384, 32'640}) {
    EXPECT_EQ(cudnn_heads({4, seq, 12, 64}), 1) << seq;
    EXPECT_EQ(cudnn_workspace_bytes({4, seq, 12, 64}, DType::bf16), cudnn_head_bytes(seq) + slack);
  }
  EXPECT_EQ(cudnn_heads({4, 8064, 12, 64}), 1);
  EXPECT_LE(cudnn_workspace_bytes({4, 8064, 12, 64}, DType::bf16), kMostCudnnBytes);
}

// Per head: 1024 query gradients of 64 elements and 1024 sums, in fp32.
TEST(CudnnRule, TakesMoreHeadsAtATimeInAnyOrder) {
  EXPECT_EQ(cudnn_heads(kGpt2, device::SumOrder::any), 500);
  EXPECT_EQ(cudnn_workspace_bytes(kGpt2, DType::bf16, device::SumOrder::any),
            std::size_t{500} * 1024 * 65 * 4 + (1U << 20U));
}

// Short rows of large heads need more workspace per head.
TEST(CudnnRule, OddLengthsThatFitAtOnceOnlyInTheFixedOrderKeepIt) {
  constexpr AttentionShape some{.batch = 1, .seq = 127, .heads = 2000, .head_size = 128};
  constexpr AttentionShape many{.batch = 1, .seq = 127, .heads = 3000, .head_size = 128};
  EXPECT_EQ(cudnn_order(some, device::SumOrder::any), device::SumOrder::any);
  EXPECT_EQ(cudnn_order(some, device::SumOrder::fixed), device::SumOrder::fixed);
  ASSERT_TRUE(suits_cudnn(many, DType::bf16));
  EXPECT_EQ(cudnn_order(many, device::SumOrder::any), device::SumOrder::fixed);
  EXPECT_EQ(cudnn_workspace_bytes(many, DType::bf16, device::SumOrder::any),
            cudnn_workspace_bytes(many, DType::bf16));
}

TEST(CudnnRule, TheDeterministicBackwardOfBlackwellNeedsANewerVersion) {
  EXPECT_TRUE(has_deterministic_cudnn(91501, 8));
  EXPECT_TRUE(has_deterministic_cudnn(91501, 9));
  EXPECT_FALSE(has_deterministic_cudnn(91800, 10));
  EXPECT_TRUE(has_deterministic_cudnn(91801, 10));
}

}  // namespace
}  // namespace tessera::kernels::cuda::cudnn_rule_test

#include "kernels/embedding/embedding.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

TEST(EmbeddingReference, ByHand) {
  const std::vector<std::int32_t> tokens{1, 0, 1, 1};  // batch 2, seq 2
  const Floats token_table{1, 2, 10, 20};
  const Floats position_table{100, 200, 1000, 2000};
  Floats y(8, kNan);
  reference::embedding_forward(
      {tokens.data(), token_table.data(), position_table.data(), y.data(), 2, 2, 2}, Stream{});
  EXPECT_EQ(y, (Floats{110, 220, 1001, 2002, 110, 220, 1010, 2020}));

  const Floats dy{1, 2, 3, 4, 5, 6, 7, 8};
  Floats dtokens{0, 0, 0.5F, 0}, dpositions(4, 0.0F);
  reference::embedding_backward(
      {tokens.data(), dy.data(), dtokens.data(), dpositions.data(), 2, 2, 2}, Stream{});
  EXPECT_EQ(dtokens, (Floats{3, 4, 13.5F, 16}));
  EXPECT_EQ(dpositions, (Floats{6, 8, 10, 12}));
}

class EmbeddingTest : public KernelTest {
 protected:
  static constexpr std::int64_t kVocab = 11, kBatch = 3, kSeq = 9, kHidden = 37;

  EmbeddingTest() {
    std::mt19937 generator{1};
    std::uniform_int_distribution<std::int32_t> uniform{0, kVocab - 1};
    for (std::int64_t i = 0; i < kBatch * kSeq; ++i) { tokens_.push_back(uniform(generator)); }
  }
  std::vector<std::int32_t> tokens_;
};

TEST_F(EmbeddingTest, ForwardMatchesReferenceToTheBit) {
  const Floats token_table = random_floats(kVocab * kHidden, 2);
  const Floats position_table = random_floats((kSeq + 2) * kHidden, 3);
  Floats expected = filled(kBatch * kSeq * kHidden, kNan);
  Placed actual{expected, 1};
  EmbeddingForward args{
      tokens_.data(), token_table.data(), position_table.data(), expected.data(), kBatch, kSeq,
      kHidden};
  reference::embedding_forward(args, Stream{});
  args.y = actual.data();
  cpu_.embedding_forward(args, stream());
  EXPECT_TRUE(same_bits(actual.values(), expected));
  EXPECT_TRUE(actual.guarded());
}

TEST_F(EmbeddingTest, BackwardMatchesReferenceToTheBit) {
  const Floats dy = random_floats(kBatch * kSeq * kHidden, 4);
  const Floats tokens_before = random_floats(kVocab * kHidden, 5);
  const Floats positions_before = random_floats((kSeq + 2) * kHidden, 6);
  for (const bool with_tokens : {false, true}) {
    for (const bool with_positions : {false, true}) {
      const auto run = [&](EmbeddingBackwardKernel* kernel, Floats& dtokens, Floats& dpositions) {
        kernel({tokens_.data(), dy.data(), with_tokens ? dtokens.data() : nullptr,
                with_positions ? dpositions.data() : nullptr, kBatch, kSeq, kHidden},
               stream());
      };
      Floats expected_tokens = tokens_before, expected_positions = positions_before;
      Floats actual_tokens = tokens_before, actual_positions = positions_before;
      run(reference::embedding_backward, expected_tokens, expected_positions);
      run(cpu_.embedding_backward, actual_tokens, actual_positions);
      EXPECT_TRUE(same_bits(actual_tokens, expected_tokens));
      EXPECT_TRUE(same_bits(actual_positions, expected_positions));
      EXPECT_EQ(same_bits(actual_tokens, tokens_before), !with_tokens);
      EXPECT_EQ(same_bits(actual_positions, positions_before), !with_positions);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels

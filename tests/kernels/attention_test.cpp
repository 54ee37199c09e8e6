#include "kernels/attention/attention.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

// Around the tile of query rows, the width of a register and one of everything.
constexpr AttentionShape kShapes[] = {{1, 1, 1, 1},    {2, 2, 1, 3},   {1, 7, 3, 5},
                                      {2, 63, 2, 8},   {1, 64, 2, 16}, {1, 65, 2, 33},
                                      {2, 130, 1, 64}, {1, 200, 3, 32}};

std::int64_t hidden(const AttentionShape& shape) {
  return shape.heads * shape.head_size;
}
std::int64_t rows(const AttentionShape& shape) {
  return shape.batch * shape.seq;
}

struct Forward {
  AttentionShape shape;
  Floats qkv, y, log_sum_exp;

  explicit Forward(const AttentionShape& shape_, float stddev = 1.0F)
      : shape{shape_},
        qkv{random_floats(rows(shape) * 3 * hidden(shape), 1, stddev)},
        y{filled(rows(shape) * hidden(shape), kNan)},
        log_sum_exp{filled(rows(shape) * shape.heads, kNan)} {}
  AttentionForward args(float* workspace) {
    return {qkv.data(), y.data(), log_sum_exp.data(), workspace, shape};
  }
};

struct Backward {
  AttentionShape shape;
  Floats qkv, y, log_sum_exp, dy, dqkv;

  explicit Backward(const AttentionShape& shape_, float stddev = 1.0F)
      : shape{shape_},
        dy{random_floats(rows(shape) * hidden(shape), 2)},
        dqkv{filled(rows(shape) * 3 * hidden(shape), kNan)} {
    Forward forward{shape, stddev};
    reference::attention_forward(forward.args(nullptr), Stream{});
    qkv = forward.qkv;
    y = forward.y;
    log_sum_exp = forward.log_sum_exp;
  }
  AttentionBackward args(float* workspace) {
    return {qkv.data(), y.data(), log_sum_exp.data(), dy.data(), dqkv.data(), workspace, shape};
  }
};

/// Workspace of exactly the documented size, poisoned.
Placed workspace(const AttentionShape& shape, std::size_t offset = 0) {
  return {filled(cpu_table().attention_workspace_elems(shape, DType::fp32, 1), kNan), offset};
}

TEST(AttentionReference, TwoPositionsByHand) {
  // Head size 1: the second row's scores are 1 * 0 and 1 * ln 3, so it looks 1 : 3.
  const Floats qkv{5.0F, 0.0F, 8.0F, 1.0F, std::log(3.0F), 16.0F};
  Floats y(2, kNan), log_sum_exp(2, kNan);
  reference::attention_forward({qkv.data(), y.data(), log_sum_exp.data(), nullptr, {1, 2, 1, 1}},
                               Stream{});
  EXPECT_EQ(y[0], 8.0F);  // the first row sees itself alone
  EXPECT_NEAR(y[1], 14.0F, 1e-5F);
  EXPECT_NEAR(log_sum_exp[0], 0.0F, 1e-6F);
  EXPECT_NEAR(log_sum_exp[1], std::log(4.0F), 1e-6F);
}

using AttentionTest = KernelTest;

TEST_F(AttentionTest, ForwardMatchesReference) {
  for (const AttentionShape& shape : kShapes) {
    for (const float stddev : {1.0F, 4.0F}) {
      SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size
                                      << ", deviation " << stddev);
      Forward expected{shape, stddev}, actual{shape, stddev};
      Placed space = workspace(shape);
      reference::attention_forward(expected.args(nullptr), Stream{});
      cpu_.attention_forward(actual.args(space.data()), stream());
      // Scores grow with the square of the deviation, and their absolute errors with them.
      EXPECT_LE(largest_difference(actual.y, expected.y),
                1e-5 * static_cast<double>(stddev * stddev));
      EXPECT_LE(largest_difference(actual.log_sum_exp, expected.log_sum_exp),
                2e-6 * static_cast<double>(stddev * stddev));
      EXPECT_TRUE(space.guarded());
    }
  }
}

TEST_F(AttentionTest, BackwardMatchesReference) {
  for (const AttentionShape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size);
    Backward expected{shape}, actual{shape};
    Placed space = workspace(shape);
    reference::attention_backward(expected.args(nullptr), Stream{});
    cpu_.attention_backward(actual.args(space.data()), stream());
    EXPECT_LE(largest_difference(actual.dqkv, expected.dqkv), 2e-5);
    EXPECT_TRUE(space.guarded());
  }
}

TEST_F(AttentionTest, LaterRowsDoNotChangeEarlierOnes) {
  const AttentionShape shape{1, 150, 2, 16};
  Forward before{shape}, after{shape};
  for (std::size_t i = 100 * 96; i < after.qkv.size(); ++i) { after.qkv[i] *= -3.0F; }
  Placed space = workspace(shape);
  cpu_.attention_forward(before.args(space.data()), stream());
  cpu_.attention_forward(after.args(space.data()), stream());
  const std::size_t kept = 100 * 32;
  EXPECT_TRUE(same_bits({after.y.data(), kept}, {before.y.data(), kept}));
  EXPECT_FALSE(same_bits(after.y, before.y));
}

TEST_F(AttentionTest, LargeScoresAreSafe) {
  const AttentionShape shape{1, 70, 1, 8};
  Forward args{shape, 1e3F};  // scores around a million: a plain exp would overflow
  Placed space = workspace(shape);
  cpu_.attention_forward(args.args(space.data()), stream());
  for (const float value : args.y) { ASSERT_TRUE(std::isfinite(value)); }
  for (const float value : args.log_sum_exp) { ASSERT_TRUE(std::isfinite(value)); }
}

// f = sum of dy * y in fp64 for one head; its slope along every input by central differences.
class Float64Attention {
 public:
  explicit Float64Attention(const Backward& from)
      : qkv(from.qkv.begin(), from.qkv.end()),
        dy_(from.dy.begin(), from.dy.end()),
        seq_{static_cast<std::size_t>(from.shape.seq)},
        size_{static_cast<std::size_t>(from.shape.head_size)} {}

  std::vector<double> qkv;

  [[nodiscard]] double value() const {
    double total = 0.0;
    for (std::size_t t = 0; t < seq_; ++t) {
      double norm = 0.0, weighted = 0.0;
      for (std::size_t s = 0; s <= t; ++s) {
        double score = 0.0, gain = 0.0;
        for (std::size_t d = 0; d < size_; ++d) {
          score += qkv[3 * t * size_ + d] * qkv[(3 * s + 1) * size_ + d];
          gain += dy_[t * size_ + d] * qkv[(3 * s + 2) * size_ + d];
        }
        const double e = std::exp(score / std::sqrt(static_cast<double>(size_)));
        norm += e;
        weighted += e * gain;
      }
      total += weighted / norm;
    }
    return total;
  }
  [[nodiscard]] double slope(std::size_t i) {
    const double h = 1e-5, at = qkv[i];
    qkv[i] = at + h;
    const double above = value();
    qkv[i] = at - h;
    const double below = value();
    qkv[i] = at;
    return (above - below) / (2 * h);
  }

 private:
  std::vector<double> dy_;
  std::size_t seq_;
  std::size_t size_;
};

TEST_F(AttentionTest, BackwardIsTheSlopeOfForward) {
  Backward args{{1, 9, 1, 6}};
  Placed space = workspace(args.shape);
  cpu_.attention_backward(args.args(space.data()), stream());
  Float64Attention exact{args};
  for (std::size_t i = 0; i < args.qkv.size(); ++i) {
    EXPECT_NEAR(args.dqkv[i], exact.slope(i), 1e-5) << i;
  }
}

// A sequence's result depends neither on its place in the batch nor on any address.
TEST_F(AttentionTest, BitsDoNotDependOnTheAddresses) {
  const AttentionShape shape{1, 100, 2, 24};
  Backward expected{shape};
  Forward forward{shape};
  Placed space = workspace(shape);
  cpu_.attention_forward(forward.args(space.data()), stream());
  cpu_.attention_backward(expected.args(space.data()), stream());
  for (const std::size_t offset : {1U, 2U, 3U, 7U, 8U, 15U}) {
    Placed qkv{expected.qkv, offset}, y{filled(100 * 48, kNan), offset + 1};
    Placed dy{expected.dy, offset + 2}, dqkv{filled(300 * 48, kNan), offset + 3};
    Placed other = workspace(shape, offset + 4);
    Floats log_sum_exp(200, kNan);
    cpu_.attention_forward({qkv.data(), y.data(), log_sum_exp.data(), other.data(), shape},
                           stream());
    EXPECT_TRUE(same_bits(y.values(), forward.y)) << offset;
    EXPECT_TRUE(same_bits(log_sum_exp, forward.log_sum_exp)) << offset;
    cpu_.attention_backward({qkv.data(), expected.y.data(), expected.log_sum_exp.data(), dy.data(),
                             dqkv.data(), other.data(), shape},
                            stream());
    EXPECT_TRUE(same_bits(dqkv.values(), expected.dqkv)) << offset;
    EXPECT_TRUE(y.guarded() && dqkv.guarded() && other.guarded());
  }
}

TEST_F(AttentionTest, BatchedSequencesGiveTheBitsOfEachAlone) {
  const AttentionShape pair{2, 90, 2, 16}, single{1, 90, 2, 16};
  Forward both{pair}, alone{single};
  Placed space = workspace(pair);
  cpu_.attention_forward(both.args(space.data()), stream());
  std::copy_n(both.qkv.data() + 90 * 96, 90 * 96, alone.qkv.data());
  cpu_.attention_forward(alone.args(space.data()), stream());
  EXPECT_TRUE(same_bits(alone.y, std::span{both.y}.subspan(90 * 32)));
}

TEST_F(AttentionTest, WorkspaceGrowsWithTheSequenceAndNotWithItsSquare) {
  const auto elems = [this](std::int64_t seq) {
    return cpu_.attention_workspace_elems({4, seq, 12, 64}, DType::fp32, 1);
  };
  EXPECT_GT(elems(1), 0);
  EXPECT_LE(elems(8192), 8 * elems(1024));
  EXPECT_LT(elems(8192), 8192 * 8192 / 32);
  EXPECT_EQ(elems(1024), cpu_.attention_workspace_elems({1, 1024, 1, 64}, DType::fp32, 1));
}

TEST_F(AttentionTest, WorkspaceIsForTheThreadsThatFindAHead) {
  const AttentionShape six_heads{2, 100, 3, 16};
  const auto elems = [&](int threads) {
    return cpu_.attention_workspace_elems(six_heads, DType::fp32, threads);
  };
  EXPECT_EQ(elems(4), 4 * elems(1));
  EXPECT_EQ(elems(6), 6 * elems(1));
  EXPECT_EQ(elems(64), 6 * elems(1));
}

}  // namespace
}  // namespace tessera::kernels

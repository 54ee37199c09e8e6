#include "kernels/attention/attention.hpp"

#include "cuda/emulation.hpp"
#include "kernels/attention_pass.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::attention_test {
namespace {

using attention::OnDevice;
using attention::Pass;
using attention::values_of;

// Sizes around the tiles of rows and of a head's elements and around a register's width, whole
// packs and not, and 1 of everything.
constexpr AttentionShape kShapes[] = {
    {1, 1, 1, 1},   {2, 2, 1, 3},   {1, 7, 3, 5},    {2, 63, 2, 8},   {1, 64, 2, 16},
    {1, 65, 2, 33}, {2, 70, 1, 64}, {1, 130, 2, 32}, {2, 130, 1, 64}, {1, 200, 3, 32},
    {1, 66, 1, 80}, {1, 9, 2, 128}, {1, 70, 1, 200}, {1, 5, 1, 256}};

TEST(AttentionReference, TwoPositionsByHand) {
  // Head size 1: the second row's scores are 1 * 0 and 1 * ln 3, so its weights are 1 : 3.
  const Floats qkv{5.0F, 0.0F, 8.0F, 1.0F, std::log(3.0F), 16.0F};
  Floats y(2, kNan), log_sum_exp(2, kNan);
  reference::attention_forward({qkv.data(), y.data(), log_sum_exp.data(), nullptr, {1, 2, 1, 1}},
                               Stream{});
  EXPECT_EQ(y[0], 8.0F);                          // the first row attends only to itself
  EXPECT_NEAR(y[1], 14.0F, roundings(12, 14.0));  // exp, two sums, a quotient
  EXPECT_NEAR(log_sum_exp[0], 0.0F, roundings(8));
  EXPECT_NEAR(log_sum_exp[1], std::log(4.0F), roundings(8, std::log(4.0)));
}

TEST(AttentionReference, ScoresFarApartDoNotOverflow) {
  // The second row's scores are 0 and 1000; exp(1000) overflows even a double.
  const Floats qkv{5.0F, 0.0F, 8.0F, 1.0F, 1000.0F, 16.0F};
  Floats y(2, kNan), log_sum_exp(2, kNan);
  reference::attention_forward({qkv.data(), y.data(), log_sum_exp.data(), nullptr, {1, 2, 1, 1}},
                               Stream{});
  EXPECT_EQ(y[1], 16.0F);
  EXPECT_EQ(log_sum_exp[1], 1000.0F);
}

class AttentionKernels : public attention::AttentionTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionKernels, backends(), backend_name);

TEST_P(AttentionKernels, AreCloseToTheReference) {
  for (const DType dtype : kValueDTypes) {
    if (TESSERA_SANITIZED && dtype == DType::fp16) { continue; }  // like bf16, and takes seconds
    for (const AttentionShape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size << ", "
                                      << to_string(dtype));
      expect_close(Pass{dtype, shape});
    }
  }
}

TEST_P(AttentionKernels, AreCloseToTheReferenceWhereScoresAreLarge) {
  for (const AttentionShape& shape : kShapes) {
    if (shape.head_size > 64) { continue; }  // scores are sums of head_size terms
    SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size);
    expect_close(Pass{DType::fp32, shape, 0.0F, 4.0F});
  }
}

TEST_P(AttentionKernels, LaterRowsDoNotChangeEarlierOnes) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Pass before{dtype, {1, 150, 2, 16}};
    Pass after = before;
    for (std::size_t i = 100 * 96; i < after.qkv.size(); ++i) { after.qkv[i] *= -3.0F; }
    OnDevice first{bench(), before}, second{bench(), after};
    run(first);
    run(second);
    const Floats a = first.y.floats(), b = second.y.floats();
    EXPECT_TRUE(same_bits({a.data(), 100 * 32}, {b.data(), 100 * 32}));
    EXPECT_FALSE(same_bits(a, b));
  }
}

TEST_P(AttentionKernels, LargeScoresAreSafe) {
  // Scores around a million: a plain exp would overflow.
  OnDevice actual{bench(), Pass{DType::fp32, {1, 70, 1, 8}, 0.0F, 1e3F}};
  run(actual);
  for (const float value : actual.y.floats()) { ASSERT_TRUE(std::isfinite(value)); }
  for (const float value : actual.log_sum_exp.read()) { ASSERT_TRUE(std::isfinite(value)); }
  for (const float value : actual.dqkv.floats()) { ASSERT_TRUE(std::isfinite(value)); }
}

// f = sum of dy * y in fp64; its slope along every input by central differences.
class Float64Attention {
 public:
  explicit Float64Attention(const Pass& from)
      : qkv(from.qkv.begin(), from.qkv.end()), pass_{from} {}

  std::vector<double> qkv;

  [[nodiscard]] double value() const {
    const AttentionShape& shape = pass_.shape;
    double total = 0.0;
    for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
      for (std::int64_t head = 0; head < shape.heads; ++head) { total += of_row(row, head); }
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
  [[nodiscard]] double of_row(std::int64_t row, std::int64_t head) const {
    const AttentionShape& shape = pass_.shape;
    const std::int64_t kv_heads = shape.kv_heads == 0 ? shape.heads : shape.kv_heads;
    const std::int64_t k_head = shape.heads + head * kv_heads / shape.heads;
    const std::int64_t t = row % shape.seq;
    const double scale = shape.scale == 0.0F ? 1 / std::sqrt(static_cast<double>(shape.head_size))
                                             : static_cast<double>(shape.scale);
    std::int64_t first = shape.window == 0 ? 0 : std::max<std::int64_t>(0, t - shape.window + 1);
    if (!pass_.first_key.empty()) {
      first = std::max<std::int64_t>(first, pass_.first_key[static_cast<std::size_t>(row)]);
    }
    double norm = 0.0, weighted = 0.0;
    for (std::int64_t s = first; s <= t; ++s) {
      double score = 0.0, gain = 0.0;
      for (std::int64_t d = 0; d < shape.head_size; ++d) {
        const auto dy = static_cast<std::size_t>((row * shape.heads + head) * shape.head_size + d);
        score += of(row, head, d) * of(row - t + s, k_head, d);
        gain += static_cast<double>(pass_.dy[dy]) * of(row - t + s, k_head + kv_heads, d);
      }
      norm += std::exp(score * scale);
      weighted += std::exp(score * scale) * gain;
    }
    return weighted / norm;
  }
  /// Element d of a head of q, k or v, counted together.
  [[nodiscard]] double of(std::int64_t row, std::int64_t head, std::int64_t d) const {
    const std::int64_t at = row * packed_of(pass_.shape) + head * pass_.shape.head_size + d;
    return qkv[static_cast<std::size_t>(at)];
  }

  const Pass& pass_;
};

TEST_P(AttentionKernels, BackwardIsTheSlopeOfForward) {
  std::vector<Pass> passes{Pass{DType::fp32, {1, 9, 1, 6}}, Pass{DType::fp32, {1, 7, 4, 3, 2, 3}},
                           Pass{DType::fp32, {2, 6, 2, 3, 1, 0, 0.25F}}};
  passes.back().first_key = {0, 0, 2, 2, 2, 5, 0, 1, 1, 3, 3, 3};
  for (const Pass& pass : passes) {
    OnDevice actual{bench(), pass};
    run(actual);
    Float64Attention exact{pass};
    const Floats dqkv = actual.dqkv.floats();
    for (std::size_t i = 0; i < dqkv.size(); ++i) {
      // bound: truncation h^2 = 1e-10; sums of 9 terms up to 5 of 6 products, (9 + 6) u 5 = 5e-6,
      // doubled
      EXPECT_NEAR(dqkv[i], exact.slope(i), 1e-5) << i;
    }
  }
}

// A sample's bits do not depend on its batch or its place in it. Exception: cuDNN (16 bits, no
// dropout).
TEST_P(AttentionKernels, BitsDependOnTheSampleAlone) {
  constexpr AttentionShape all{3, 70, 2, 24}, one{1, 70, 2, 24};
  for (const DType dtype : kValueDTypes) {
    for (const float dropout : {0.0F, 0.3F}) {
      if (on_cuda() && dtype != DType::fp32 && dropout == 0.0F) { continue; }
      const Pass pass{dtype, all, dropout};
      OnDevice whole{bench(), pass};
      run(whole);
      const auto offsets =
          on_cuda() ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, 2, 3, 7, 8, 15};
      for (const std::int64_t offset : offsets) {
        for (const std::int64_t stagger : {0, 1}) {
          OnDevice moved{bench(), pass, offset, stagger};
          run(moved);
          EXPECT_EQ(moved.y.read(), whole.y.read()) << offset;
          EXPECT_EQ(moved.dqkv.read(), whole.dqkv.read()) << offset;
          EXPECT_EQ(moved.log_sum_exp.read(), whole.log_sum_exp.read()) << offset;
        }
      }
      const Floats y = whole.y.floats(), dqkv = whole.dqkv.floats();
      const auto values = static_cast<std::size_t>(values_of(one));
      for (std::size_t sample = 0; sample < 3; ++sample) {
        Pass alone{dtype, one, dropout};
        alone.key.first_sample += static_cast<std::int64_t>(sample);
        std::copy_n(pass.qkv.data() + 3 * sample * values, 3 * values, alone.qkv.data());
        std::copy_n(pass.dy.data() + sample * values, values, alone.dy.data());
        OnDevice actual{bench(), alone};
        run(actual);
        EXPECT_TRUE(same_bits(actual.y.floats(), std::span{y}.subspan(sample * values, values)));
        EXPECT_TRUE(same_bits(actual.dqkv.floats(),
                              std::span{dqkv}.subspan(3 * sample * values, 3 * values)));
      }
    }
  }
}

TEST_P(AttentionKernels, BothDirectionsHaveTheSameBitsInEveryRun) {
  for (const float dropout : {0.0F, 0.3F}) {
    const Pass pass{DType::bf16, {1, 130, 3, 64}, dropout};
    OnDevice first{bench(), pass}, second{bench(), pass};
    run(first);
    run(second);
    EXPECT_EQ(first.y.read(), second.y.read());
    EXPECT_EQ(first.dqkv.read(), second.dqkv.read());
  }
}

TEST_P(AttentionKernels, EmptyInputIsLegal) {
  for (const AttentionShape shape : {AttentionShape{0, 4, 2, 8}, AttentionShape{2, 0, 2, 8}}) {
    OnDevice actual{bench(), Pass{DType::fp32, shape}};
    run(actual);
    stream().wait();
  }
}

TEST(AttentionWorkspaceOnCpu, GrowsWithTheSequenceAndNotWithItsSquare) {
  const auto elems = [](std::int64_t seq) {
    return cpu_table().attention_workspace_elems({4, seq, 12, 64}, DType::fp32, {});
  };
  EXPECT_GT(elems(1), 0);
  EXPECT_LE(elems(8192), 8 * elems(1024));
  EXPECT_LT(elems(8192), 8192 * 8192 / 32);
  EXPECT_EQ(elems(1024), cpu_table().attention_workspace_elems({1, 1024, 1, 64}, DType::fp32, {}));
}

TEST(AttentionWorkspaceOnCpu, CountsOnlyThreadsWithAHead) {
  const AttentionShape six_heads{2, 100, 3, 16};
  const auto elems = [&](int threads) {
    return cpu_table().attention_workspace_elems(six_heads, DType::fp32, {.threads = threads});
  };
  EXPECT_EQ(elems(4), 4 * elems(1));
  EXPECT_EQ(elems(6), 6 * elems(1));
  EXPECT_EQ(elems(64), 6 * elems(1));
}

class AttentionOnCpu : public attention::AttentionTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionOnCpu, cpu_alone(), backend_name);

/// Allows two roundings of a value to a dtype, and the fp32 error where values of size `scale`
/// cancel.
void expect_rounded(const Floats& actual, const Floats& wide, DType dtype, double scale) {
  ASSERT_EQ(actual.size(), wide.size());
  const Floats expected = rounded(dtype, wide);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2 * rounding(dtype, expected[i]) + 64 * kRoundoff * scale)
        << "element " << i;
  }
}

TEST_P(AttentionOnCpu, SixteenBitsAreTheFp32KernelsOnWidenedValues) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const AttentionShape shape :
         {AttentionShape{2, 9, 3, 5}, AttentionShape{1, 70, 2, 16}, AttentionShape{2, 65, 2, 9}}) {
      for (const float dropout : {0.0F, 0.3F}) {
        const Pass pass{dtype, shape, dropout};
        Pass wide_pass = pass;
        wide_pass.dtype = DType::fp32;
        OnDevice low{bench(), pass}, wide{bench(), wide_pass};
        run(low);
        wide.forward(bench());
        expect_rounded(low.y.floats(), wide.y.floats(), dtype, 1.0);
        // bound: two orders of 16 products up to 5 and of 70 exponentials, 2 sqrt(86) u 5 = 5.5e-6,
        // doubled
        EXPECT_LE(largest_difference(low.log_sum_exp.read(), wide.log_sum_exp.read()), 1e-5);
        DeviceValues y{bench(), low.y.floats(), DType::fp32};  // as it was stored
        table().attention_backward({wide.qkv, y, wide.log_sum_exp.data(), wide.dy, wide.dqkv,
                                    wide.workspace.data(), shape, dropout, pass.key},
                                   stream());
        expect_rounded(low.dqkv.floats(), wide.dqkv.floats(), dtype, 50.0);
      }
    }
  }
}

class AttentionOnCuda : public attention::AttentionTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionOnCuda, cuda_alone(), backend_name);

// cuDNN's workspace limit fits three heads, then two.
TEST_P(AttentionOnCuda, HeadsOfALongSequenceAreIndependent) {
  if (test::Emulation::there()) { GTEST_SKIP() << "has no cuDNN, and would take minutes"; }
  constexpr AttentionShape all{1, 4096, 5, 8}, one{1, 4096, 1, 8};
  const Pass pass{DType::bf16, all};
  OnDevice whole{bench(), pass};
  run(whole);
  const Floats y = whole.y.floats(), dqkv = whole.dqkv.floats();
  const auto head_of = [&](const Floats& values, std::int64_t parts, std::int64_t head) {
    Floats of_head;
    for (std::int64_t i = 0; i < all.seq * parts; ++i) {
      const auto first = values.begin() + (i * all.heads + head) * all.head_size;
      of_head.insert(of_head.end(), first, first + all.head_size);
    }
    return of_head;
  };
  for (std::int64_t head = 0; head < all.heads; ++head) {
    Pass part{DType::bf16, one};
    part.qkv = head_of(pass.qkv, 3, head);
    part.dy = head_of(pass.dy, 1, head);
    OnDevice alone{bench(), part};
    run(alone);
    EXPECT_LE(largest_difference(alone.y.floats(), head_of(y, 1, head)), 0.02) << head;
    EXPECT_LE(largest_difference(alone.dqkv.floats(), head_of(dqkv, 3, head)), 0.1) << head;
  }
}

TEST_P(AttentionOnCuda, HeadsThatAreTooLargeAreRefused) {
  OnDevice actual{bench(), Pass{DType::fp32, {1, 2, 1, 257}}};
  EXPECT_THROW(run(actual), ContractError);
}

}  // namespace
}  // namespace tessera::kernels::attention_test

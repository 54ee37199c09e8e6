// Attention with dropout of probabilities: forward and backward generate the same mask from
// counters.
#include "kernels/attention_pass.hpp"

namespace tessera::kernels::attention_dropout_test {
namespace {

using attention::OnDevice;
using attention::Pass;
using attention::values_of;

constexpr float kP = 0.3F;

class AttentionDropout : public attention::AttentionTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AttentionDropout, backends(), backend_name);

// Sizes around the tiles of rows (for 16 bits on CUDA, both tile sizes), around the words generated
// together, and rows whose length is no multiple of four words.
TEST_P(AttentionDropout, DropsWhatTheReferenceDrops) {
  for (const AttentionShape shape :
       {AttentionShape{1, 1, 1, 1}, AttentionShape{2, 7, 3, 5}, AttentionShape{1, 64, 2, 16},
        AttentionShape{1, 130, 2, 16}, AttentionShape{2, 65, 2, 9}, AttentionShape{1, 130, 1, 32},
        AttentionShape{1, 71, 2, 72}, AttentionShape{1, 34, 1, 128}}) {
    for (const DType dtype : kValueDTypes) {
      SCOPED_TRACE(testing::Message()
                   << shape.seq << " rows, " << shape.heads << " heads, " << to_string(dtype));
      expect_close(Pass{dtype, shape, kP});
    }
  }
}

// A dropped probability is exactly zero: with a unit vector as the value of each key, y shows which
// were kept.
TEST_P(AttentionDropout, DropsNoOtherElement) {
  constexpr std::int64_t seq = 70;
  Pass pass{DType::fp32, {1, seq, 1, seq}, 0.4F};
  for (std::int64_t t = 0; t < seq; ++t) {
    for (std::int64_t d = 0; d < seq; ++d) {
      pass.qkv[static_cast<std::size_t>((3 * t + 2) * seq + d)] = t == d ? 1.0F : 0.0F;
    }
  }
  pass.forward();
  OnDevice actual{bench(), pass};
  run(actual);
  const Floats y = actual.y.floats();
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y[i] == 0.0F, pass.y[i] == 0.0F) << i;
    dropped += y[i] == 0.0F ? 1 : 0;
  }
  EXPECT_GT(dropped, y.size() / 2);
}

// With every value 1 and all scores equal, y is the fraction of the row that was kept, over 1 - p.
TEST_P(AttentionDropout, KeepsTheStatedShareOfTheProbabilities) {
  constexpr AttentionShape shape{4, 100, 3, 1};
  Pass pass{DType::fp32, shape, kP};
  std::fill(pass.qkv.begin(), pass.qkv.end(), 1.0F);
  OnDevice actual{bench(), pass};
  actual.forward(bench());
  const Floats y = actual.y.floats();
  double sum = 0.0, seen = 0.0;
  for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
    const auto keys = static_cast<double>(row % shape.seq + 1);
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const double kept =
          static_cast<double>(y[static_cast<std::size_t>(row * shape.heads + h)]) * keys * 0.7;
      // A sum of up to 100 terms, each of a few operations.
      EXPECT_NEAR(kept, std::round(kept), roundings(2 * 100 + 16, keys));
      sum += kept;
      seen += keys;
    }
  }
  // Binomial: five standard deviations.
  EXPECT_NEAR(sum / seen, 0.7, 5 * std::sqrt(0.3 * 0.7 / seen));
}

// f = sum of dy * y. The reference rounds y to fp32; the step size takes that into account.
TEST_P(AttentionDropout, BackwardIsTheSlopeOfForward) {
  const Pass pass{DType::fp32, {1, 6, 2, 3}, kP};
  OnDevice actual{bench(), pass};
  run(actual);
  const Floats dqkv = actual.dqkv.floats();
  const auto value = [&](const Floats& qkv) {
    Pass moved = pass;
    moved.qkv = qkv;
    moved.forward();
    double sum = 0.0;
    for (std::size_t i = 0; i < moved.y.size(); ++i) {
      sum += static_cast<double>(moved.y[i]) * static_cast<double>(moved.dy[i]);
    }
    return sum;
  };
  for (std::size_t i = 0; i < pass.qkv.size(); ++i) {
    constexpr float h = 0x1p-8F;
    Floats above = pass.qkv, below = pass.qkv;
    above[i] += h;
    below[i] -= h;
    const double step = static_cast<double>(above[i]) - static_cast<double>(below[i]);
    // bound: 36 rounded values up to 5, 36 u 5 / 2^-7 = 1.4e-3; truncation, h^2 = 1.5e-5 times a
    // third derivative
    EXPECT_NEAR(dqkv[i], (value(above) - value(below)) / step, 2e-3) << i;
  }
}

TEST_P(AttentionDropout, HasOtherMasksForEveryHeadRowAndKey) {
  Pass pass{DType::fp32, {1, 40, 2, 1}, kP};
  std::fill(pass.qkv.begin(), pass.qkv.end(), 1.0F);
  const auto y_of = [&](const Pass& of) {
    OnDevice actual{bench(), of};
    actual.forward(bench());
    return actual.y.floats();
  };
  Pass other_step = pass, other_site = pass, other_seed = pass, off = pass;
  ++other_step.key.step;
  ++other_site.key.site;
  ++other_seed.key.seed;
  off.dropout = 0.0F;
  const Floats y = y_of(pass);
  for (const Pass& other : {other_step, other_site, other_seed}) { EXPECT_NE(y, y_of(other)); }
  // A sum of 40 equal terms.
  for (const float value : y_of(off)) { EXPECT_NEAR(value, 1.0F, roundings(40)); }
  int differ = 0;
  for (std::size_t row = 0; row < 40; ++row) { differ += y[2 * row] != y[2 * row + 1]; }
  EXPECT_GT(differ, 20);
}

// The last two heads of three, as a rank along `tensor` may have.
TEST_P(AttentionDropout, HeadsKeepTheirMasksOnAnyRank) {
  constexpr std::int64_t seq = 37, size = 8;
  for (const DType dtype : kValueDTypes) {
    Pass all{dtype, {2, seq, 3, size}, kP};
    Pass cut{dtype, {2, seq, 2, size}, kP};
    cut.first_head = 1;
    for (std::size_t row = 0; row < 2 * seq; ++row) {
      for (std::size_t part = 0; part < 3; ++part) {
        const auto from =
            all.qkv.begin() + static_cast<std::ptrdiff_t>((3 * row + part) * 3 * size);
        std::copy(from + size, from + 3 * size,
                  cut.qkv.begin() + static_cast<std::ptrdiff_t>((3 * row + part) * 2 * size));
      }
      const auto from = all.dy.begin() + static_cast<std::ptrdiff_t>(row * 3 * size);
      std::copy(from + size, from + 3 * size,
                cut.dy.begin() + static_cast<std::ptrdiff_t>(row * 2 * size));
    }
    all.forward();
    Pass expected = cut;
    expected.forward();
    for (std::size_t row = 0; row < 2 * seq; ++row) {
      for (std::size_t i = 0; i < 2 * size; ++i) {
        EXPECT_EQ(expected.y[row * 2 * size + i], all.y[row * 3 * size + size + i]);
      }
    }
    expect_close(cut);
  }
}

TEST(AttentionDropoutOnThreads, HasTheSameBits) {
  const Pass pass{DType::fp32, {3, 70, 4, 8}, kP};
  DeviceBench one{make_cpu_device()}, three{make_cpu_device({.threads = 3})};
  OnDevice expected{one, pass}, actual{three, pass, 0, 0, 3};
  expected.run(one);
  actual.run(three);
  EXPECT_EQ(actual.y.read(), expected.y.read());
  EXPECT_EQ(actual.dqkv.read(), expected.dqkv.read());
}

}  // namespace
}  // namespace tessera::kernels::attention_dropout_test

#include "kernels/attention/attention.hpp"

#include "cuda/device_values.hpp"
#include "cuda/emulation.hpp"
#include "kernels/attention/cudnn_rule.hpp"

namespace tessera::test {
namespace {

using AttentionCuda = CudaTest;
using kernels::AttentionShape;
namespace reference = kernels::reference;

// Around the tiles of rows and of elements of a head, whole packs and not, and one of everything.
constexpr AttentionShape kShapes[] = {{1, 1, 1, 1},   {2, 2, 1, 3},    {1, 7, 3, 5},
                                      {2, 63, 2, 8},  {1, 64, 2, 16},  {1, 65, 2, 33},
                                      {2, 70, 1, 64}, {1, 130, 2, 32}, {1, 66, 1, 80},
                                      {1, 9, 2, 128}, {1, 70, 1, 200}, {1, 5, 1, 256}};
constexpr kernels::DropoutKey kKey{.seed = 3, .step = 5, .site = 4, .first_sample = 6};

std::int64_t values_of(const AttentionShape& shape) {
  return shape.batch * shape.seq * shape.heads * shape.head_size;
}

/// Both directions by the reference, in fp32 on values as a dtype has them.
struct Pass {
  AttentionShape shape;
  float dropout;
  Floats qkv, dy, y, log_sum_exp, dqkv;

  Pass(DType dtype, const AttentionShape& shape_, float dropout_ = 0.0F, float stddev = 1.0F)
      : shape{shape_},
        dropout{dropout_},
        qkv{rounded(dtype, random_floats(3 * values_of(shape), 1, stddev))},
        dy{rounded(dtype, random_floats(values_of(shape), 2))},
        y{filled(values_of(shape), kNan)},
        log_sum_exp{filled(values_of(shape) / shape.head_size, kNan)},
        dqkv{filled(3 * values_of(shape), kNan)} {
    reference::attention_forward(
        {qkv.data(), y.data(), log_sum_exp.data(), nullptr, shape, dropout, kKey}, Stream{});
    reference::attention_backward({qkv.data(), y.data(), log_sum_exp.data(), dy.data(), dqkv.data(),
                                   nullptr, shape, dropout, kKey},
                                  Stream{});
  }
};

struct OnDevice {
  AttentionShape shape;
  float dropout;
  DeviceValues qkv, dy, y, dqkv;
  DeviceArray<float> log_sum_exp, workspace;

  OnDevice(CudaBench& bench, DType dtype, const Pass& from, std::int64_t offset = 0)
      : shape{from.shape},
        dropout{from.dropout},
        qkv{bench, from.qkv, dtype, offset},
        dy{bench, from.dy, dtype, offset},
        y{bench, filled(std::ssize(from.y), kNan), dtype, offset},
        dqkv{bench, filled(std::ssize(from.dqkv), kNan), dtype, offset},
        log_sum_exp{bench, std::ssize(from.log_sum_exp)},
        workspace{bench,
                  kernels::table_of(DeviceKind::cuda).attention_workspace_elems(shape, dtype, 1)} {}

  void run(const kernels::Table& table, Stream stream) {
    table.attention_forward({qkv, y, log_sum_exp.data(), workspace.data(), shape, dropout, kKey},
                            stream);
    table.attention_backward(
        {qkv, y, log_sum_exp.data(), dy, dqkv, workspace.data(), shape, dropout, kKey}, stream);
  }
};

/// What cuDNN may be off by besides: it rounds probabilities, of which a row's sum is 1, and their
/// gradients to the dtype.
double of_cudnn(DType dtype, const Pass& pass, double size) {
  const bool may_be = pass.dropout == 0.0F && kernels::cuda::suits_cudnn(pass.shape, dtype);
  return may_be ? rounding(dtype, size) : 0.0;
}

// Scores grow with the square of the deviation, and their absolute errors with them. In 16 bits y
// is rounded before backward reads it.
void expect_pass(CudaBench& bench, DType dtype, const Pass& expected, double stddev = 1.0) {
  OnDevice actual{bench, dtype, expected};
  actual.run(kernels::table_of(DeviceKind::cuda), bench.stream());
  const double scale = stddev * stddev * (expected.dropout > 0.0F ? 2.0 : 1.0);
  const double rounded_y = of_cudnn(dtype, expected, 4.0 * stddev);
  expect_within(actual.y.floats(), expected.y, dtype,
                [&](std::size_t) { return 1e-5 * scale + rounded_y; });
  EXPECT_LE(kernels::largest_difference(actual.log_sum_exp.read(), expected.log_sum_exp),
            4e-6 * scale);
  const double stored = (dtype == DType::fp32 ? 0.0 : rounding(dtype, 8.0 * stddev)) +
                        of_cudnn(dtype, expected, 32.0 * stddev);
  expect_within(actual.dqkv.floats(), expected.dqkv, dtype,
                [&](std::size_t) { return 4e-5 * scale * stddev + stored; });
}

TEST_F(AttentionCuda, IsCloseToTheReference) {
  for (const DType dtype : kValueDTypes) {
    for (const AttentionShape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.seq << " rows, head size " << shape.head_size);
      expect_pass(bench(), dtype, Pass{dtype, shape});
    }
  }
}

TEST_F(AttentionCuda, IsCloseToTheReferenceWhereScoresAreLarge) {
  const AttentionShape shape{1, 70, 2, 16};
  expect_pass(bench(), DType::fp32, Pass{DType::fp32, shape, 0.0F, 4.0F}, 4.0);
}

TEST_F(AttentionCuda, DropsWhatTheReferenceDrops) {
  for (const AttentionShape shape : {AttentionShape{1, 1, 1, 1}, AttentionShape{2, 7, 3, 5},
                                     AttentionShape{1, 130, 2, 16}, AttentionShape{2, 65, 2, 9}}) {
    SCOPED_TRACE(testing::Message() << shape.seq << " rows, " << shape.heads << " heads");
    for (const DType dtype : kValueDTypes) {
      expect_pass(bench(), dtype, Pass{dtype, shape, 0.3F});
    }
  }
}

// A dropped probability is exactly zero: with values that are unit vectors, one for each key, y
// shows which were kept.
TEST_F(AttentionCuda, DropsNoOtherElement) {
  constexpr std::int64_t seq = 70;
  Pass pass{DType::fp32, {1, seq, 1, seq}, 0.4F};
  for (std::int64_t t = 0; t < seq; ++t) {
    for (std::int64_t d = 0; d < seq; ++d) {
      pass.qkv[static_cast<std::size_t>((3 * t + 2) * seq + d)] = t == d ? 1.0F : 0.0F;
    }
  }
  reference::attention_forward({pass.qkv.data(), pass.y.data(), pass.log_sum_exp.data(), nullptr,
                                pass.shape, pass.dropout, kKey},
                               Stream{});
  OnDevice actual{bench(), DType::fp32, pass};
  actual.run(table(), stream());
  const Floats y = actual.y.floats();
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y[i] == 0.0F, pass.y[i] == 0.0F) << i;
    dropped += y[i] == 0.0F ? 1 : 0;
  }
  EXPECT_GT(dropped, y.size() / 2);
}

TEST_F(AttentionCuda, LaterRowsDoNotChangeEarlierOnes) {
  const Pass before{DType::bf16, {1, 100, 2, 16}};
  Pass after = before;
  for (std::size_t i = 70 * 96; i < after.qkv.size(); ++i) { after.qkv[i] *= -3.0F; }
  OnDevice first{bench(), DType::bf16, before}, second{bench(), DType::bf16, after};
  first.run(table(), stream());
  second.run(table(), stream());
  const Floats a = first.y.floats(), b = second.y.floats();
  EXPECT_TRUE(same_bits({a.data(), 70 * 32}, {b.data(), 70 * 32}));
  EXPECT_FALSE(same_bits(a, b));
}

TEST_F(AttentionCuda, LargeScoresAreSafe) {
  OnDevice actual{bench(), DType::fp32, Pass{DType::fp32, {1, 70, 1, 8}, 0.0F, 1e3F}};
  actual.run(table(), stream());
  for (const float value : actual.y.floats()) { ASSERT_TRUE(std::isfinite(value)); }
  for (const float value : actual.log_sum_exp.read()) { ASSERT_TRUE(std::isfinite(value)); }
  for (const float value : actual.dqkv.floats()) { ASSERT_TRUE(std::isfinite(value)); }
}

// Of a sample alone, whatever batch it is in and wherever that lies.
TEST_F(AttentionCuda, BitsDependOnTheSampleAlone) {
  for (const DType dtype : kValueDTypes) {
    constexpr AttentionShape all{2, 70, 2, 16}, one{1, 70, 2, 16};
    const Pass pass{dtype, all, 0.3F};
    OnDevice whole{bench(), dtype, pass}, moved{bench(), dtype, pass, 1};
    whole.run(table(), stream());
    moved.run(table(), stream());
    EXPECT_EQ(moved.y.read(), whole.y.read());
    EXPECT_EQ(moved.dqkv.read(), whole.dqkv.read());

    Pass first{dtype, one, 0.3F};
    std::copy_n(pass.qkv.begin(), first.qkv.size(), first.qkv.begin());
    std::copy_n(pass.dy.begin(), first.dy.size(), first.dy.begin());
    OnDevice alone{bench(), dtype, first};
    alone.run(table(), stream());
    const Floats y = whole.y.floats(), dqkv = whole.dqkv.floats();
    EXPECT_TRUE(same_bits(alone.y.floats(), {y.data(), first.y.size()}));
    EXPECT_TRUE(same_bits(alone.dqkv.floats(), {dqkv.data(), first.dqkv.size()}));
  }
}

// Three heads fit what cuDNN may work in at a time, then two.
TEST_F(AttentionCuda, HeadsOfALongSequenceAreTheirOwn) {
  if (Emulation::there()) { GTEST_SKIP() << "has no cuDNN, and would take minutes"; }
  constexpr AttentionShape all{1, 4096, 5, 8}, one{1, 4096, 1, 8};
  const Floats qkv = rounded(DType::bf16, random_floats(3 * values_of(all), 1));
  const Floats dy = rounded(DType::bf16, random_floats(values_of(all), 2));
  const auto pass = [](const AttentionShape& shape, Floats packed, Floats gradient) {
    Pass empty{DType::bf16, {1, 1, shape.heads, shape.head_size}};
    empty.shape = shape;
    empty.qkv = std::move(packed);
    empty.dy = std::move(gradient);
    empty.y = filled(values_of(shape), kNan);
    empty.dqkv = filled(3 * values_of(shape), kNan);
    empty.log_sum_exp = filled(shape.seq * shape.heads, kNan);
    return empty;
  };
  OnDevice whole{bench(), DType::bf16, pass(all, qkv, dy)};
  whole.run(table(), stream());
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
    OnDevice alone{bench(), DType::bf16, pass(one, head_of(qkv, 3, head), head_of(dy, 1, head))};
    alone.run(table(), stream());
    EXPECT_LE(kernels::largest_difference(alone.y.floats(), head_of(y, 1, head)), 0.02) << head;
    EXPECT_LE(kernels::largest_difference(alone.dqkv.floats(), head_of(dqkv, 3, head)), 0.1)
        << head;
  }
}

TEST_F(AttentionCuda, BackwardHasTheSameBitsInEveryRun) {
  const Pass pass{DType::bf16, {2, 130, 3, 64}};
  OnDevice first{bench(), DType::bf16, pass}, second{bench(), DType::bf16, pass};
  first.run(table(), stream());
  second.run(table(), stream());
  EXPECT_EQ(first.y.read(), second.y.read());
  EXPECT_EQ(first.dqkv.read(), second.dqkv.read());
}

TEST_F(AttentionCuda, NothingIsLegal) {
  for (const AttentionShape shape : {AttentionShape{0, 4, 2, 8}, AttentionShape{2, 0, 2, 8}}) {
    OnDevice actual{bench(), DType::fp32, Pass{DType::fp32, shape}};
    actual.run(table(), stream());
    stream().wait();
  }
}

TEST_F(AttentionCuda, HeadsThatAreTooLargeAreRefused) {
  OnDevice actual{bench(), DType::fp32, Pass{DType::fp32, {1, 2, 1, 257}}};
  EXPECT_THROW(actual.run(table(), stream()), ContractError);
}

}  // namespace
}  // namespace tessera::test

// Attention that drops probabilities: forward and backward make the same mask again from counters.
#include <cmath>

#include "kernels/attention/attention.hpp"
#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

// Around the tile of query rows, the words that are made together, and rows that are no multiple of
// four words long.
constexpr AttentionShape kShapes[] = {
    {1, 1, 1, 1}, {2, 7, 3, 5}, {1, 64, 2, 16}, {2, 65, 2, 9}, {1, 130, 1, 32}};
constexpr DropoutKey kKey{.seed = 3, .step = 5, .site = 4, .first_sample = 6};
constexpr float kP = 0.3F;

std::int64_t values_of(const AttentionShape& shape) {
  return shape.batch * shape.seq * shape.heads * shape.head_size;
}
Floats workspace_of(const AttentionShape& shape) {
  return filled(cpu_table().attention_workspace_elems(shape, DType::fp32, 1), kNan);
}

/// Both directions with a kernel each.
struct Pass {
  AttentionShape shape;
  float dropout = kP;
  DropoutKey key = kKey;
  Floats qkv = random_floats(3 * values_of(shape), 1);
  Floats dy = random_floats(values_of(shape), 2);
  Floats y = filled(values_of(shape), kNan);
  Floats log_sum_exp = filled(values_of(shape) / shape.head_size, kNan);
  Floats dqkv = filled(3 * values_of(shape), kNan);

  void run(AttentionForwardKernel* forward, AttentionBackwardKernel* backward, Stream stream) {
    Floats workspace = workspace_of(shape);
    forward({qkv.data(), y.data(), log_sum_exp.data(), workspace.data(), shape, dropout, key},
            stream);
    backward({qkv.data(), y.data(), log_sum_exp.data(), dy.data(), dqkv.data(), workspace.data(),
              shape, dropout, key},
             stream);
  }
};

class AttentionDropout : public KernelTest {
 protected:
  void run(Pass& pass) { pass.run(cpu_.attention_forward, cpu_.attention_backward, stream()); }
};

TEST_F(AttentionDropout, MatchesReference) {
  for (const AttentionShape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.seq << " rows, " << shape.heads << " heads");
    Pass expected{shape}, actual{shape};
    expected.run(reference::attention_forward, reference::attention_backward, stream());
    run(actual);
    EXPECT_LE(largest_difference(actual.y, expected.y), 2e-5);
    EXPECT_LE(largest_difference(actual.log_sum_exp, expected.log_sum_exp), 2e-6);
    EXPECT_LE(largest_difference(actual.dqkv, expected.dqkv), 4e-5);
  }
}

// Every value 1 and every score equal: y is the part of a row that was kept, over 1 - p.
TEST_F(AttentionDropout, KeepsTheShareOfTheProbabilitiesThatItSays) {
  constexpr AttentionShape shape{4, 100, 3, 1};
  Pass pass{shape};
  std::fill(pass.qkv.begin(), pass.qkv.end(), 1.0F);
  run(pass);
  double sum = 0.0, seen = 0.0;
  for (std::int64_t row = 0; row < shape.batch * shape.seq; ++row) {
    const auto keys = static_cast<double>(row % shape.seq + 1);
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const double kept =
          static_cast<double>(pass.y[static_cast<std::size_t>(row * shape.heads + h)]) * keys * 0.7;
      EXPECT_NEAR(kept, std::round(kept), 1e-3);
      sum += kept;
      seen += keys;
    }
  }
  // Binomial: five standard deviations.
  EXPECT_NEAR(sum / seen, 0.7, 5 * std::sqrt(0.3 * 0.7 / seen));
}

// f = sum of dy * y; y of the reference is rounded to fp32, which the step is chosen for.
TEST_F(AttentionDropout, BackwardIsTheSlopeOfForward) {
  Pass pass{{1, 6, 2, 3}};
  run(pass);
  const auto value = [&](const Floats& qkv) {
    Pass moved = pass;
    moved.qkv = qkv;
    reference::attention_forward({moved.qkv.data(), moved.y.data(), moved.log_sum_exp.data(),
                                  nullptr, moved.shape, kP, kKey},
                                 stream());
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
    EXPECT_NEAR(pass.dqkv[i], (value(above) - value(below)) / step, 2e-3) << i;
  }
}

// A sample's masks are its own, wherever it stands in a batch and however many threads there are.
TEST_F(AttentionDropout, BitsDependOnTheSampleAndNotOnTheCut) {
  constexpr AttentionShape all{3, 70, 4, 8}, one{1, 70, 4, 8};
  Pass whole{all};
  run(whole);
  const auto device = make_cpu_device({.threads = 3});
  const OwnedStream threads = device->make_compute_stream();
  for (std::int64_t sample = 0; sample < all.batch; ++sample) {
    Pass alone{one};
    alone.key.first_sample += sample;
    const std::int64_t values = values_of(one);
    std::copy_n(whole.qkv.data() + sample * 3 * values, 3 * values, alone.qkv.data());
    std::copy_n(whole.dy.data() + sample * values, values, alone.dy.data());
    Floats workspace = filled(cpu_.attention_workspace_elems(one, DType::fp32, 3), kNan);
    cpu_.attention_forward({alone.qkv.data(), alone.y.data(), alone.log_sum_exp.data(),
                            workspace.data(), one, kP, alone.key},
                           threads.get());
    cpu_.attention_backward(
        {alone.qkv.data(), alone.y.data(), alone.log_sum_exp.data(), alone.dy.data(),
         alone.dqkv.data(), workspace.data(), one, kP, alone.key},
        threads.get());
    const auto count = static_cast<std::size_t>(values);
    const auto at = static_cast<std::size_t>(sample * values);
    EXPECT_TRUE(same_bits(alone.y, std::span{whole.y}.subspan(at, count)));
    EXPECT_TRUE(same_bits(alone.dqkv, std::span{whole.dqkv}.subspan(3 * at, 3 * count)));
  }
}

TEST_F(AttentionDropout, HasOtherMasksForEveryHeadRowAndKey) {
  constexpr AttentionShape shape{1, 40, 2, 1};
  Pass pass{shape};
  std::fill(pass.qkv.begin(), pass.qkv.end(), 1.0F);
  Pass other_step = pass, other_site = pass, other_seed = pass, off = pass;
  ++other_step.key.step;
  ++other_site.key.site;
  ++other_seed.key.seed;
  off.dropout = 0.0F;
  for (Pass* p : {&pass, &other_step, &other_site, &other_seed, &off}) { run(*p); }
  EXPECT_NE(pass.y, other_step.y);
  EXPECT_NE(pass.y, other_site.y);
  EXPECT_NE(pass.y, other_seed.y);
  for (const float value : off.y) { EXPECT_NEAR(value, 1.0F, 1e-6F); }
  int differ = 0;
  for (std::size_t row = 0; row < 40; ++row) { differ += pass.y[2 * row] != pass.y[2 * row + 1]; }
  EXPECT_GT(differ, 20);
}

TEST_F(AttentionDropout, SixteenBitsDropTheSame) {
  const AttentionShape shape{2, 65, 2, 9};
  const auto check = [&]<class Half>(Half) {
    Pass wide{shape};
    std::vector<Half> qkv, dy, y(wide.y.size()), dqkv(wide.dqkv.size());
    const auto narrow = [](Floats& values, std::vector<Half>& to) {
      for (float& value : values) {
        to.push_back(Half::from_float(value));
        value = to.back().to_float();
      }
    };
    narrow(wide.qkv, qkv);
    narrow(wide.dy, dy);
    run(wide);
    Floats workspace =
        filled(cpu_.attention_workspace_elems(shape, ConstValues{qkv.data()}.dtype, 1), kNan);
    Floats log_sum_exp = filled(values_of(shape) / shape.head_size, kNan);
    const AttentionForward forward{
        qkv.data(), y.data(), log_sum_exp.data(), workspace.data(), shape, kP, kKey};
    cpu_.attention_forward(forward, stream());
    const AttentionBackward backward{qkv.data(), y.data(),    log_sum_exp.data(),
                                     dy.data(),  dqkv.data(), workspace.data(),
                                     shape,      kP,          kKey};
    cpu_.attention_backward(backward, stream());
    // Rounded once; y, read in backward, moves the mean of a row by as much again.
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i].to_float(), wide.y[i], 0x1p-8 * std::abs(wide.y[i]) + 1e-5);
    }
    for (std::size_t i = 0; i < dqkv.size(); ++i) {
      ASSERT_NEAR(dqkv[i].to_float(), wide.dqkv[i], 0x1p-8 * std::abs(wide.dqkv[i]) + 0.05);
    }
  };
  check(bfloat16{});
  check(float16{});
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/rotary/rotary.hpp"

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::rotary_test {
namespace {

TEST(RotaryReference, ByHand) {
  // One head of two pairs, at positions 0 and 1, where the angles are 1 / 100^0 and 1 / 100^(1/2).
  Floats cosines(4), sines(4);
  rotary_angles(2, 4, 100.0, cosines, sines);
  EXPECT_EQ(cosines[0], 1.0F);
  EXPECT_EQ(sines[1], 0.0F);
  EXPECT_EQ(cosines[2], std::cos(1.0F));
  EXPECT_EQ(sines[3], static_cast<float>(std::sin(0.1)));

  Floats x{1, 2, 3, 4, 1, 2, 3, 4};
  reference::rotary_forward({x.data(), cosines.data(), sines.data(), 1, 2, 1, 4}, Stream{});
  EXPECT_THAT(std::vector(x.begin(), x.begin() + 4), testing::ElementsAre(1, 2, 3, 4));
  const double most = roundings(4, 5.0);  // two products of rounded factors, and their sum
  EXPECT_NEAR(x[4], std::cos(1.0) - 3 * std::sin(1.0), most);
  EXPECT_NEAR(x[5], 2 * std::cos(0.1) - 4 * std::sin(0.1), most);
  EXPECT_NEAR(x[6], 3 * std::cos(1.0) + std::sin(1.0), most);
  EXPECT_NEAR(x[7], 4 * std::cos(0.1) + 2 * std::sin(0.1), most);
}

// One head whose first four values are two pairs of neighbours, at position 1.
TEST(RotaryReference, NeighboursAmongTheFirstValuesByHand) {
  Floats cosines(4), sines(4);
  rotary_angles(2, 4, 100.0, cosines, sines);
  Floats x{0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6};
  reference::rotary_forward({.x = x.data(),
                             .cosines = cosines.data(),
                             .sines = sines.data(),
                             .batch = 1,
                             .seq = 2,
                             .heads = 1,
                             .head_size = 6,
                             .rotated = 4,
                             .pairs = RotaryPairs::neighbours},
                            Stream{});
  const double most = roundings(4, 5.0);
  EXPECT_NEAR(x[6], std::cos(1.0) - 2 * std::sin(1.0), most);
  EXPECT_NEAR(x[7], 2 * std::cos(1.0) + std::sin(1.0), most);
  EXPECT_NEAR(x[8], 3 * std::cos(0.1) - 4 * std::sin(0.1), most);
  EXPECT_NEAR(x[9], 4 * std::cos(0.1) + 3 * std::sin(0.1), most);
  EXPECT_EQ(x[10], 5.0F);
  EXPECT_EQ(x[11], 6.0F);
}

struct Shape {
  std::int64_t batch, seq, heads, head_size, row_elems = 0, rotated = 0;
};
// Halves that are whole packs and not, rows that are aligned and not; gaps after the heads; heads
// of which some values are rotated.
constexpr Shape kShapes[] = {
    {0, 3, 2, 8},          {1, 1, 1, 2},           {2, 5, 3, 6},          {2, 3, 4, 16},
    {2, 7, 2, 32, 96},     {3, 2, 4, 16, 71},      {1, 40, 6, 64, 576},   {2, 5, 3, 7, 0, 2},
    {2, 5, 3, 20, 0, 10},  {2, 7, 2, 32, 96, 16},  {2, 3, 4, 36, 0, 16},  {1, 9, 3, 80, 256, 48},
    {2, 3, 2, 16, 35, 16}, {1, 40, 6, 64, 576, 6}, {3, 5, 2, 40, 88, 40},
};

/// A shape's values, with gaps, and its tables.
struct Problem {
  Shape shape;
  RotaryPairs pairs;
  Floats x, cosines, sines;
  std::vector<std::int32_t> first_key;  ///< also outside [0, t]

  explicit Problem(const Shape& of, RotaryPairs in = RotaryPairs::halves) : shape{of}, pairs{in} {
    const std::int64_t row = of.row_elems == 0 ? of.heads * of.head_size : of.row_elems;
    const std::int64_t rotated = of.rotated == 0 ? of.head_size : of.rotated;
    x = random_floats(of.batch * of.seq * row, 1);
    cosines = filled(of.seq * rotated / 2, kNan);
    sines = cosines;
    rotary_angles(of.seq, rotated, 10'000.0, cosines, sines);
    for (std::int64_t t = 0; t < of.batch * of.seq; ++t) {
      first_key.push_back(static_cast<std::int32_t>(t * 7 % (of.seq + 5) - 2));
    }
  }
  [[nodiscard]] Rotary args(Values values, const float* cosine, const float* sine,
                            const std::int32_t* first = nullptr) const {
    return {values,          cosine,          sine,          shape.batch, shape.seq, shape.heads,
            shape.head_size, shape.row_elems, shape.rotated, pairs,       first};
  }
};

class RotaryKernels : public BackendTest {
 protected:
  /// Both directions have the bits of the reference, and change no other value.
  void expect_bits_of_reference(const Problem& problem, DType dtype, std::int64_t offset,
                                bool documents) {
    HostValues expected{dtype, problem.x};
    DeviceValues x{bench(), problem.x, dtype, offset};
    DeviceArray<float> cosines{bench(), problem.cosines, offset};
    DeviceArray<float> sines{bench(), problem.sines, offset};
    DeviceArray<std::int32_t> first_key{bench(), problem.first_key};
    const Rotary on_host =
        problem.args(expected.view(), problem.cosines.data(), problem.sines.data(),
                     documents ? problem.first_key.data() : nullptr);
    const Rotary on_device =
        problem.args(x, cosines.data(), sines.data(), documents ? first_key.data() : nullptr);
    reference::rotary_forward(on_host, Stream{});
    table().rotary_forward(on_device, stream());
    EXPECT_EQ(x.read(), expected.bytes());
    reference::rotary_backward(on_host, Stream{});
    table().rotary_backward(on_device, stream());
    EXPECT_EQ(x.read(), expected.bytes());
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RotaryKernels, backends(), backend_name);

TEST_P(RotaryKernels, BothDirectionsHaveTheBitsOfTheReferenceAndLeaveGapsAlone) {
  for (const Shape& shape : kShapes) {
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      const Problem problem{shape, pairs};
      for (const DType dtype : kValueDTypes) {
        for (const std::int64_t offset : {0, 1}) {
          SCOPED_TRACE(testing::Message()
                       << shape.rotated << " of " << shape.head_size << " of " << shape.row_elems
                       << (pairs == RotaryPairs::halves ? ", halves" : ", neighbours"));
          expect_bits_of_reference(problem, dtype, offset, false);
          expect_bits_of_reference(problem, dtype, offset, true);
        }
      }
    }
  }
}

// Two documents in a sample are rotated as if each were a sample.
TEST_P(RotaryKernels, PositionsBeginAnewInEachDocument) {
  constexpr std::int64_t kRow = 3 * 12;
  for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
    const Problem problem{{1, 7, 3, 12}, pairs};
    DeviceArray<float> cosines{bench(), problem.cosines}, sines{bench(), problem.sines};
    DeviceArray<float> x{bench(), problem.x}, apart{bench(), problem.x};
    DeviceArray<std::int32_t> first_key{bench(), std::vector<std::int32_t>{0, 0, 0, 3, 3, 3, 3}};
    table().rotary_forward(problem.args(x.data(), cosines.data(), sines.data(), first_key.data()),
                           stream());
    Rotary first = problem.args(apart.data(), cosines.data(), sines.data());
    first.seq = 3;
    Rotary second = problem.args(apart.data() + 3 * kRow, cosines.data(), sines.data());
    second.seq = 4;
    table().rotary_forward(first, stream());
    table().rotary_forward(second, stream());
    EXPECT_EQ(x.read(), apart.read());
  }
}

// A rotation keeps the length, and its gradient rotates back.
TEST_P(RotaryKernels, BackwardUndoesForward) {
  const Problem problem{{2, 40, 3, 24, 0}};
  DeviceArray<float> x{bench(), problem.x};
  DeviceArray<float> cosines{bench(), problem.cosines}, sines{bench(), problem.sines};
  const Rotary args = problem.args(x.data(), cosines.data(), sines.data());
  table().rotary_forward(args, stream());
  EXPECT_GT(largest_difference(x.read(), problem.x), 1.0);
  table().rotary_backward(args, stream());
  // Two rotations of pairs up to 5, of 4 roundings each.
  EXPECT_LE(largest_difference(x.read(), problem.x), roundings(8, 5.0));
}

// The product of a query and a key depends only on their distance.
TEST_P(RotaryKernels, ProductsDependOnTheDistanceAlone) {
  Problem problem{{1, 30, 1, 16, 0}};
  for (std::size_t t = 1; t < 30; ++t) {
    std::copy_n(problem.x.begin(), 16, problem.x.begin() + static_cast<std::ptrdiff_t>(16 * t));
  }
  DeviceArray<float> x{bench(), problem.x};
  DeviceArray<float> cosines{bench(), problem.cosines}, sines{bench(), problem.sines};
  table().rotary_forward(problem.args(x.data(), cosines.data(), sines.data()), stream());
  const Floats turned = x.read();
  const auto product = [&](std::size_t s, std::size_t t) {
    double sum = 0.0;
    for (std::size_t i = 0; i < 16; ++i) {
      sum += static_cast<double>(turned[16 * s + i]) * static_cast<double>(turned[16 * t + i]);
    }
    return sum;
  };
  // On both sides 16 products of rotated values whose mean square is 1, each of 4 roundings.
  EXPECT_NEAR(product(3, 10), product(20, 27), roundings(2 * 16 * (4 + 4)));
  EXPECT_GT(std::abs(product(3, 10) - product(3, 11)), 1e-2);
}

/// Cosine and sine of a pair's angle at a position, in float64.
struct Angle {
  RotaryScaling scaling;
  std::int64_t pair, position;
  double cosine, sine;
};
constexpr RotaryScaling kBy8{8.0, 1.0, 4.0, 8192}, kBy32{32.0, 1.0, 4.0, 8192};
// A Python program computed them with math.cos and math.sin, and the frequencies as in Hugging
// Face's _compute_llama3_parameters: base 500000 and 64 pairs, as Llama 3.1 (by 8) and 3.2 (by 32)
// have them. Pairs 0 .. 28 keep their frequency, 29 .. 34 are between, 35 .. 63 are divided.
constexpr Angle kScaledAngles[] = {
    {kBy8, 0, 8191, -0.6463904697642574, -0.76300678935245558},
    {kBy8, 28, 8191, 0.38811318852261878, 0.92161171482072979},
    {kBy8, 29, 1, 0.99999765298648147, 0.0021665690685128036},
    {kBy8, 29, 8191, 0.4507644371441738, -0.89264294217010209},
    {kBy8, 32, 8191, -0.40170148822816504, -0.9157706669004404},
    {kBy8, 34, 8191, 0.1084252587334102, 0.99410460378603671},
    {kBy8, 35, 1, 0.99999999543394025, 9.5562123394199376e-05},
    {kBy8, 35, 8191, 0.70897728954777894, 0.70523131163149932},
    {kBy8, 63, 8191, 0.99999684051383864, 0.0025137546301255411},
    {kBy32, 28, 8191, 0.38811318852261878, 0.92161171482072979},
    {kBy32, 29, 8191, 0.073046997925895155, -0.9973284995897862},
    {kBy32, 34, 8191, 0.70013779958791211, 0.71400774616820273},
    {kBy32, 35, 8191, 0.98091425462455673, 0.19444080095070121},
    {kBy32, 63, 8191, 0.99999980253201748, 0.00062843927801442036},
};

TEST(RotaryAngles, AreScaledAsLlama3Does) {
  constexpr std::int64_t kSeq = 8192, kPairs = 64;
  for (const RotaryScaling& scaling : {kBy8, kBy32}) {
    Floats cosines(kSeq * kPairs), sines(kSeq * kPairs);
    rotary_angles(kSeq, 2 * kPairs, 500'000.0, cosines, sines, scaling);
    for (const Angle& angle : kScaledAngles) {
      if (angle.scaling != scaling) { continue; }
      SCOPED_TRACE(testing::Message() << "pair " << angle.pair << " by " << scaling.factor);
      const auto at = static_cast<std::size_t>(angle.position * kPairs + angle.pair);
      EXPECT_NEAR(cosines[at], angle.cosine, roundings(1, std::abs(angle.cosine)));
      EXPECT_NEAR(sines[at], angle.sine, roundings(1, std::abs(angle.sine)));
    }
  }
}

TEST(RotaryAngles, RefuseScalingsWithoutOrder) {
  Floats six(6);
  const auto refuses = [&](const RotaryScaling& scaling, const char* text) {
    try {
      rotary_angles(2, 6, 1e4, six, six, scaling);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const ContractError& error) { EXPECT_THAT(error.what(), testing::StartsWith(text)); }
  };
  refuses({.factor = 0.0}, "rotary_angles: factor is 0; give a number above 0");
  refuses({.factor = static_cast<double>(kNan)}, "rotary_angles: factor is nan");
  refuses({.original_positions = -1}, "rotary_angles: original_positions is -1; give 0 or more");
  const char* const order = "rotary_angles: low_frequency_factor is ";
  refuses({.low_frequency_factor = 4.0, .high_frequency_factor = 4.0}, order);
  refuses({.low_frequency_factor = 0.0}, order);
}

TEST(RotaryAngles, RefuseTablesThatDoNotFit) {
  Floats six(6), four(4);
  EXPECT_THROW(rotary_angles(2, 6, 1e4, six, four), ContractError);
  EXPECT_THROW(rotary_angles(2, 5, 1e4, four, four), ContractError);
  EXPECT_NO_THROW(rotary_angles(2, 6, 1e4, six, six));
}

}  // namespace
}  // namespace tessera::kernels::rotary_test

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

struct Shape {
  std::int64_t batch, seq, heads, head_size, row_elems;
};
// Halves that are whole packs and not, rows that are aligned and not; gaps after the heads.
constexpr Shape kShapes[] = {{0, 3, 2, 8, 0},    {1, 1, 1, 2, 0},   {2, 5, 3, 6, 0},
                             {2, 3, 4, 16, 0},   {2, 7, 2, 32, 96}, {3, 2, 4, 16, 71},
                             {1, 40, 6, 64, 576}};

/// A shape's values, with gaps, and its tables.
struct Problem {
  Shape shape;
  Floats x, cosines, sines;

  explicit Problem(const Shape& of) : shape{of} {
    const std::int64_t row = of.row_elems == 0 ? of.heads * of.head_size : of.row_elems;
    x = random_floats(of.batch * of.seq * row, 1);
    cosines = filled(of.seq * of.head_size / 2, kNan);
    sines = cosines;
    rotary_angles(of.seq, of.head_size, 10'000.0, cosines, sines);
  }
  [[nodiscard]] Rotary args(Values values, const float* cosine, const float* sine) const {
    return {values,      cosine,          sine,           shape.batch, shape.seq,
            shape.heads, shape.head_size, shape.row_elems};
  }
};

class RotaryKernels : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, RotaryKernels, backends(), backend_name);

TEST_P(RotaryKernels, BothDirectionsHaveTheBitsOfTheReferenceAndLeaveGapsAlone) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kValueDTypes) {
      for (const std::int64_t offset : {0, 1}) {
        SCOPED_TRACE(testing::Message() << shape.head_size << " of " << shape.row_elems);
        const Problem problem{shape};
        HostValues expected{dtype, problem.x};
        DeviceValues x{bench(), problem.x, dtype, offset};
        DeviceArray<float> cosines{bench(), problem.cosines, offset};
        DeviceArray<float> sines{bench(), problem.sines, offset};
        const Rotary on_host =
            problem.args(expected.view(), problem.cosines.data(), problem.sines.data());
        const Rotary on_device = problem.args(x, cosines.data(), sines.data());
        reference::rotary_forward(on_host, Stream{});
        table().rotary_forward(on_device, stream());
        EXPECT_EQ(x.read(), expected.bytes());
        reference::rotary_backward(on_host, Stream{});
        table().rotary_backward(on_device, stream());
        EXPECT_EQ(x.read(), expected.bytes());
      }
    }
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

TEST(RotaryAngles, RefuseTablesThatDoNotFit) {
  Floats six(6), four(4);
  EXPECT_THROW(rotary_angles(2, 6, 1e4, six, four), ContractError);
  EXPECT_THROW(rotary_angles(2, 5, 1e4, four, four), ContractError);
  EXPECT_NO_THROW(rotary_angles(2, 6, 1e4, six, six));
}

}  // namespace
}  // namespace tessera::kernels::rotary_test

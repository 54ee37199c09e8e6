#include "kernels/rms_norm/rms_norm.hpp"

#include <array>

#include "kernels/values.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::rms_norm_test {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
// Sizes around a register's width; rows that a warp holds, that a block holds, and that are read
// again; whole packs and not.
constexpr Size kMatrices[] = {{0, 8},    {1, 1},      {2, 3},    {5, 7},    {3, 8},    {33, 31},
                              {33, 32},  {65, 257},   {70, 100}, {9, 1024}, {3, 1025}, {300, 24},
                              {2, 8200}, {2, 16'400}, {7, 768},  {6, 769},  {3, 1537}, {2, 8192}};

/// Parameters and results, in fp32 for the reference.
struct Problem {
  std::int64_t rows, columns;
  Floats x, weight, dy, dx, dweight, y, inverse_rms;

  Problem(DType dtype, DType other, const Size& size)
      : rows{size.rows},
        columns{size.columns},
        x{rounded(dtype, random_floats(rows * columns, 1, 2.0F))},
        weight{rounded(other, random_floats(columns, 2))},
        dy{rounded(dtype, random_floats(rows * columns, 3))},
        dx{rounded(dtype, random_floats(rows * columns, 4))},
        dweight{rounded(other, random_floats(columns, 5))},
        y{filled(rows * columns, kNan)},
        inverse_rms{filled(rows, kNan)} {
    reference::rms_norm_forward(
        {x.data(), weight.data(), y.data(), inverse_rms.data(), rows, columns}, Stream{});
  }
  void backward() {
    reference::rms_norm_backward({x.data(), weight.data(), inverse_rms.data(), dy.data(), dx.data(),
                                  dweight.data(), rows, columns},
                                 Stream{});
  }
};

TEST(RMSNormReference, ByHand) {
  const Floats x{1, 7}, weight{2, 10};
  Floats y(2), inverse_rms(1);
  reference::rms_norm_forward({x.data(), weight.data(), y.data(), inverse_rms.data(), 1, 2, 0.0F},
                              Stream{});
  EXPECT_EQ(inverse_rms[0], 0.2F);  // the mean square is 25
  EXPECT_NEAR(y[0], 0.4F, roundings(4, 0.4));
  EXPECT_NEAR(y[1], 14.0F, roundings(4, 14.0));
  reference::rms_norm_forward({x.data(), weight.data(), y.data(), inverse_rms.data(), 1, 2, 75.0F},
                              Stream{});
  EXPECT_EQ(inverse_rms[0], 0.1F);
}

// Two groups of two rows, whose next row is a gap in x.
TEST(RMSNormReference, GroupsByHand) {
  const Floats x{1, 7, 2, 14, kNan, 3, 21, 4, 28}, weight{1, 10};
  Floats y(8), inverse_rms(4);
  reference::rms_norm_forward({.x = x.data(),
                               .weight = weight.data(),
                               .y = y.data(),
                               .inverse_rms = inverse_rms.data(),
                               .rows = 4,
                               .columns = 2,
                               .eps = 0.0F,
                               .group = 2,
                               .x_group_elems = 5},
                              Stream{});
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(inverse_rms[r], 0.2F / static_cast<float>(r + 1));
    EXPECT_NEAR(y[2 * r], 0.2F, roundings(4, 0.2));
    EXPECT_NEAR(y[2 * r + 1], 14.0F, roundings(4, 14.0));
  }
}

/// Offsets of all arrays, in elements. Each is offset by `stagger` more than the one before.
using Offsets = std::array<std::int64_t, 6>;
Offsets staggered(std::int64_t offset, std::int64_t stagger) {
  Offsets all{};
  for (std::int64_t& at : all) { at = std::exchange(offset, offset + stagger); }
  return all;
}

/// The same on a device in the requested dtypes.
struct OnDevice {
  DeviceValues x, weight, y, dy, dx, dweight;
  DeviceArray<float> inverse_rms;
  std::int64_t rows, columns;

  OnDevice(DeviceBench& bench, DType dtype, DType other, const Problem& from,
           const Offsets& at = {})
      : x{bench, from.x, dtype, at[0]},
        weight{bench, from.weight, other, at[1]},
        y{bench, std::ssize(from.x), dtype, at[2]},
        dy{bench, from.dy, dtype, at[3]},
        dx{bench, from.dx, dtype, at[4]},
        dweight{bench, from.dweight, other, at[5]},
        inverse_rms{bench, from.inverse_rms},
        rows{from.rows},
        columns{from.columns} {}
  RMSNormForward forward() { return {x, weight, y, inverse_rms.data(), rows, columns}; }
  RMSNormBackward backward() {
    return {x, weight, inverse_rms.data(), dy, dx, dweight, rows, columns};
  }
};

class RMSNormKernels : public BackendTest {
 protected:
  /// body(dtype of the activations, dtype of the weight, size).
  template <class Body>
  static void for_all(Body body) {
    for (const DType dtype : kValueDTypes) {
      for (const DType other : kValueDTypes) {
        for (const Size& size : kMatrices) {
          SCOPED_TRACE(testing::Message() << size.rows << " x " << size.columns << ", "
                                          << to_string(dtype) << " and " << to_string(other));
          body(dtype, other, size);
          if (HasFatalFailure()) { return; }
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RMSNormKernels, backends(), backend_name);

// Each element has a few roundings in sequence. A row's sum is of squares, which cannot cancel; its
// fp32 part has at most columns / 512 additions.
TEST_P(RMSNormKernels, ForwardIsCloseToFloat64) {
  for_all([&](DType dtype, DType other, const Size& size) {
    const Problem expected{dtype, other, size};
    OnDevice actual{bench(), dtype, other, expected};
    actual.inverse_rms.poison();
    table().rms_norm_forward(actual.forward(), stream());
    const double bound = (32.0 + static_cast<double>(size.columns) / 8) * kRoundoff;
    const Floats inverse_rms = actual.inverse_rms.read();
    for (std::size_t r = 0; r < inverse_rms.size(); ++r) {
      ASSERT_NEAR(inverse_rms[r] / expected.inverse_rms[r], 1.0, bound);
    }
    expect_within(actual.y.floats(), expected.y, dtype, [&](std::size_t i) {
      return (bound + 4 * kRoundoff) * std::abs(static_cast<double>(expected.y[i]));
    });
  });
}

TEST_P(RMSNormKernels, EpsilonIsAddedToTheMeanSquare) {
  DeviceArray<float> x{bench(), Floats{1, 7}}, weight{bench(), Floats{2, 10}};
  DeviceArray<float> y{bench(), 2}, inverse_rms{bench(), 1};
  table().rms_norm_forward({x.data(), weight.data(), y.data(), inverse_rms.data(), 1, 2, 75.0F},
                           stream());
  EXPECT_NEAR(inverse_rms.read()[0], 0.1F, roundings(2, 0.1));  // the mean square is 25
  EXPECT_NEAR(y.read()[0], 0.2F, roundings(4, 0.2));
  EXPECT_NEAR(y.read()[1], 7.0F, roundings(4, 7.0));
}

TEST_P(RMSNormKernels, BackwardIsCloseToFloat64) {
  for_all([&](DType dtype, DType other, const Size& size) {
    Problem expected{dtype, other, size};
    OnDevice actual{bench(), dtype, other, expected};
    table().rms_norm_backward(actual.backward(), stream());
    std::vector<double> sizes(expected.dweight.size());  // magnitudes of a column's terms, summed
    for (std::size_t i = 0; i < expected.x.size(); ++i) {
      const std::size_t n = sizes.size();
      sizes[i % n] +=
          std::abs(static_cast<double>(expected.dy[i]) * static_cast<double>(expected.x[i]) *
                   static_cast<double>(expected.inverse_rms[i / n]));
    }
    const auto blocks = static_cast<double>(ceil_div<std::int64_t>(size.rows, 32));
    const Floats before = expected.dweight;
    expected.backward();
    const double columns = size.columns > 2 ? 1.0 : 100.0;  // the inverse may be large
    // Five roundings of products up to 5 * 5.
    expect_within(actual.dx.floats(), expected.dx, dtype,
                  [&](std::size_t) { return roundings(5.5, 5.0 * 5.0) * columns; });
    expect_within(actual.dweight.floats(), expected.dweight, other, [&](std::size_t c) {
      const double all = sizes[c] + std::abs(static_cast<double>(before[c]));
      // A CPU rounds 16-bit sums after every 32 rows.
      return 1.5e-5 + (other == DType::fp32 ? 0.0 : blocks * rounding(other, all));
    });
  });
}

// f = sum of dy * y in fp64; its slope along every input by central differences.
TEST_P(RMSNormKernels, BackwardIsTheSlopeOfForward) {
  const Problem before{DType::fp32, DType::fp32, {5, 13}};
  OnDevice actual{bench(), DType::fp32, DType::fp32, before};
  table().rms_norm_backward(actual.backward(), stream());
  std::vector<double> x(before.x.begin(), before.x.end());
  std::vector<double> weight(before.weight.begin(), before.weight.end());
  const auto value = [&] {
    double sum = 0.0;
    for (std::size_t r = 0; r < x.size(); r += 13) {
      double square = 0.0;
      for (std::size_t c = 0; c < 13; ++c) { square += x[r + c] * x[r + c] / 13; }
      for (std::size_t c = 0; c < 13; ++c) {
        sum +=
            static_cast<double>(before.dy[r + c]) * weight[c] * x[r + c] / std::sqrt(square + 1e-5);
      }
    }
    return sum;
  };
  const auto slope = [&](double& along) {
    const double h = 1e-5, at = along;
    along = at + h;
    const double above = value();
    along = at - h;
    const double below = value();
    along = at;
    return (above - below) / (2 * h);
  };
  const Floats dx = actual.dx.floats(), dweight = actual.dweight.floats();
  for (std::size_t i = 0; i < x.size(); ++i) {
    // bound: truncation h^2 = 1e-10; the bounds of backward against float64
    EXPECT_NEAR(dx[i] - before.dx[i], slope(x[i]), 1e-5) << "dx " << i;
  }
  for (std::size_t c = 0; c < weight.size(); ++c) {
    // bound: as above
    EXPECT_NEAR(dweight[c] - before.dweight[c], slope(weight[c]), 1e-5) << "dweight " << c;
  }
}

TEST_P(RMSNormKernels, AFrozenWeightGetsNoGradient) {
  const Problem problem{DType::bf16, DType::fp32, {33, 40}};
  OnDevice all{bench(), DType::bf16, DType::fp32, problem};
  table().rms_norm_backward(all.backward(), stream());
  OnDevice frozen{bench(), DType::bf16, DType::fp32, problem};
  RMSNormBackward args = frozen.backward();
  args.dweight = nullptr;
  table().rms_norm_backward(args, stream());
  EXPECT_EQ(frozen.dx.read(), all.dx.read());
  EXPECT_EQ(frozen.dweight.floats(), problem.dweight);
}

struct Groups {
  std::int64_t rows, columns, group;
};
// Of whole packs and not; rows that a warp holds, that a block holds, and that are read again.
constexpr Groups kGroups[] = {{0, 8, 3},   {6, 8, 3},    {66, 32, 2},  {70, 64, 70}, {12, 7, 4},
                              {8, 128, 4}, {4, 1032, 2}, {6, 1031, 3}, {4, 8200, 2}};

/// An array of groups of rows, with a gap of NaNs after each group.
struct GroupedArray {
  std::int64_t group, elems;  ///< of a group, and from one to the next
  Floats values;

  GroupedArray(const Floats& rows, const Groups& of, std::int64_t gap)
      : group{of.group * of.columns}, elems{group + gap}, values{with_gaps(rows, group, elems)} {}
  /// Its bytes, if its rows have these values.
  [[nodiscard]] Bytes with(const Floats& rows, DType dtype) const {
    return encoded(with_gaps(rows, group, elems), dtype);
  }
};

// A group is as many rows: its results have the bits of those of rows without gaps, and its gaps do
// not change.
TEST_P(RMSNormKernels, RowsInGroupsHaveTheBitsOfRowsSideBySide) {
  for (const DType dtype : kValueDTypes) {
    for (const Groups& of : kGroups) {
      SCOPED_TRACE(testing::Message() << of.rows << " x " << of.columns << " by " << of.group
                                      << ", " << to_string(dtype));
      const Problem problem{dtype, DType::fp32, {of.rows, of.columns}};
      OnDevice plain{bench(), dtype, DType::fp32, problem};
      table().rms_norm_forward(plain.forward(), stream());
      table().rms_norm_backward(plain.backward(), stream());
      const std::int64_t side_by_side = of.group * of.columns;
      // Gaps that keep groups aligned, and that do not.
      for (const std::int64_t gap : {8, 3}) {
        const GroupedArray x{problem.x, of, gap}, y{problem.y, of, 2 * gap};
        const GroupedArray dy{problem.dy, of, 3 * gap}, dx{problem.dx, of, gap};
        OnDevice all{bench(), dtype, DType::fp32, problem};
        DeviceValues on_x{bench(), x.values, dtype}, on_y{bench(), y.values, dtype};
        DeviceValues on_dy{bench(), dy.values, dtype}, on_dx{bench(), dx.values, dtype};

        RMSNormForward forward = all.forward();
        forward.group = of.group;
        forward.x = on_x;
        forward.x_group_elems = x.elems;
        table().rms_norm_forward(forward, stream());
        EXPECT_EQ(all.y.read(), plain.y.read());
        EXPECT_EQ(all.inverse_rms.read(), plain.inverse_rms.read());
        forward.y = on_y;
        forward.y_group_elems = y.elems;
        table().rms_norm_forward(forward, stream());
        EXPECT_EQ(on_y.read(), y.with(plain.y.floats(), dtype));

        RMSNormBackward backward = all.backward();
        backward.group = of.group;
        backward.x = on_x;
        backward.x_group_elems = x.elems;
        backward.dy = on_dy;
        backward.dy_group_elems = dy.elems;
        backward.dx = on_dx;
        backward.dx_group_elems = dx.elems;
        table().rms_norm_backward(backward, stream());
        EXPECT_EQ(on_dx.read(), dx.with(plain.dx.floats(), dtype));
        EXPECT_EQ(all.dweight.read(), plain.dweight.read());

        // In place of x.
        forward.y = on_x;
        forward.y_group_elems = x.elems;
        table().rms_norm_forward(forward, stream());
        EXPECT_EQ(on_x.read(), x.with(plain.y.floats(), dtype));
        forward.x = forward.y = all.x;
        forward.x_group_elems = forward.y_group_elems = side_by_side;
        table().rms_norm_forward(forward, stream());
        EXPECT_EQ(all.x.read(), plain.y.read());
      }
    }
  }
}

// An overwritten dx has the values of one that is added to zeros, also in place of dy.
TEST_P(RMSNormKernels, OverwriteDxAlsoInPlaceOfDy) {
  for (const DType dtype : kValueDTypes) {
    for (const Groups& of : kGroups) {
      SCOPED_TRACE(testing::Message() << of.rows << " x " << of.columns << " by " << of.group
                                      << ", " << to_string(dtype));
      Problem problem{dtype, DType::bf16, {of.rows, of.columns}};
      problem.dx = filled(std::ssize(problem.dx), 0.0F);
      OnDevice added{bench(), dtype, DType::bf16, problem};
      table().rms_norm_backward(added.backward(), stream());

      OnDevice overwritten{bench(), dtype, DType::bf16, problem};
      RMSNormBackward args = overwritten.backward();
      args.dx_write = Write::overwrite;
      DeviceValues dx{bench(), std::ssize(problem.dx), dtype};  // NaNs
      args.dx = dx;
      table().rms_norm_backward(args, stream());
      EXPECT_EQ(dx.floats(), added.dx.floats());
      EXPECT_EQ(overwritten.dweight.read(), added.dweight.read());

      OnDevice in_place{bench(), dtype, DType::bf16, problem};
      const GroupedArray dy{problem.dy, of, 8};
      DeviceValues on_dy{bench(), dy.values, dtype};
      args = in_place.backward();
      args.dx_write = Write::overwrite;
      args.group = of.group;
      args.dy = args.dx = on_dy;
      args.dy_group_elems = args.dx_group_elems = dy.elems;
      table().rms_norm_backward(args, stream());
      const Floats rows = without_gaps(on_dy.floats(), dy.group, dy.elems);
      EXPECT_EQ(rows, added.dx.floats());
      EXPECT_EQ(in_place.dweight.read(), added.dweight.read());
    }
  }
}

TEST_P(RMSNormKernels, BitsDoNotDependOnTheAddresses) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Size size : {Size{40, 72}, Size{40, 75}, Size{2, 16'640}}) {
      const Problem problem{dtype, DType::fp32, size};
      OnDevice expected{bench(), dtype, DType::fp32, problem};
      table().rms_norm_forward(expected.forward(), stream());
      table().rms_norm_backward(expected.backward(), stream());
      std::vector<Offsets> all{staggered(1, 0), staggered(2, 1), staggered(7, 0)};
      for (std::size_t array = 0; array < Offsets{}.size(); ++array) {
        all.emplace_back(Offsets{})[array] = 1;
      }
      for (const Offsets& offsets : all) {
        SCOPED_TRACE(testing::PrintToString(offsets));
        OnDevice actual{bench(), dtype, DType::fp32, problem, offsets};
        table().rms_norm_forward(actual.forward(), stream());
        table().rms_norm_backward(actual.backward(), stream());
        EXPECT_EQ(actual.y.read(), expected.y.read());
        EXPECT_EQ(actual.dx.read(), expected.dx.read());
        EXPECT_EQ(actual.dweight.read(), expected.dweight.read());
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::rms_norm_test

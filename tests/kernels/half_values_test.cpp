// Kernels on values of 16 bits: the fp32 kernel's arithmetic on the values as they are, each result
// rounded once when it is stored.

#include <array>
#include <functional>

#include "kernels/support.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

/// An array of some dtype between guards, made from floats that are rounded to it.
class Array {
 public:
  Array(DType dtype, const Floats& values)
      : dtype_{dtype},
        elems_{std::ssize(values)},
        bytes_(size_in_bytes() + 2 * guard_bytes(), kGuard) {
    for (std::int64_t i = 0; i < elems_; ++i) {
      set_element(at(0), i, values[static_cast<std::size_t>(i)]);
    }
  }
  [[nodiscard]] Values at(std::int64_t i) {
    return Values{bytes_.data() + guard_bytes(), dtype_}.at(i);
  }
  [[nodiscard]] Floats floats() {
    Floats all;
    for (std::int64_t i = 0; i < elems_; ++i) { all.push_back(element(at(0), i)); }
    return all;
  }
  [[nodiscard]] bool guarded() const {
    const auto is_guard = [](std::uint8_t byte) { return byte == kGuard; };
    const auto length = static_cast<std::ptrdiff_t>(guard_bytes());
    return std::all_of(bytes_.begin(), bytes_.begin() + length, is_guard) &&
           std::all_of(bytes_.end() - length, bytes_.end(), is_guard);
  }

 private:
  /// What follows starts one element after a multiple of 64 bytes.
  [[nodiscard]] std::size_t guard_bytes() const { return 64 + size_of(dtype_); }
  static constexpr std::uint8_t kGuard = 0xA5;
  [[nodiscard]] std::size_t size_in_bytes() const {
    return static_cast<std::size_t>(elems_) * size_of(dtype_);
  }
  DType dtype_;
  std::int64_t elems_;
  std::vector<std::uint8_t> bytes_;
};

/// Of the last place of a value of size `value`; what fp32 arithmetic may add to it is far less,
/// except where results cancel: `scale` is the size of what cancelled.
double place(DType dtype, double value, double scale) {
  const double unit = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::fp16 ? 0x1p-11 : 0x1p-24;
  const double least = dtype == DType::fp16 ? 0x1p-24 : 0x1p-126;
  return 2 * unit * std::abs(value) + 64 * 0x1p-24 * scale + least;
}

void expect_close(const Floats& actual, const Floats& expected, DType dtype, double scale = 1.0) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], place(dtype, expected[i], scale)) << "element " << i;
  }
}

constexpr std::array kHalves{DType::bf16, DType::fp16};
constexpr std::array kAll{DType::fp32, DType::bf16, DType::fp16};
constexpr std::array<std::int64_t, 5> kWidths{1, 7, 8, 45, 64};

using HalfValuesTest = KernelTest;

// The vector conversions are those of the types, for every pattern of 16 bits and around every tie.
TEST_F(HalfValuesTest, VectorConversionsHaveTheBitsOfTheTypes) {
  const auto check = [&]<class Half>(Half) {
    std::vector<Half> all;
    for (int i = 0; i < 65'536; ++i) { all.push_back(Half{static_cast<std::uint16_t>(i)}); }
    for (std::size_t i = 0; i < all.size(); i += kLanes) {
      const Vec v = load(&all[i]);
      for (std::int64_t l = 0; l < kLanes; ++l) {
        const float expected = all[i + static_cast<std::size_t>(l)].to_float();
        const float actual = v[l];
        const bool same =
            std::bit_cast<std::uint32_t>(actual) == std::bit_cast<std::uint32_t>(expected);
        ASSERT_TRUE(same || (std::isnan(actual) && std::isnan(expected))) << i;
      }
    }
    std::mt19937 generator{7};
    for (int i = 0; i < 200'000; ++i) {
      Vec v;
      std::array<Half, kLanes> written;
      for (std::int64_t l = 0; l < kLanes; ++l) {
        auto bits = static_cast<std::uint32_t>(generator());
        if (i % 2 == 0) { bits = (bits & 0xFFFF0000U) | 0x8000U; }  // a tie of bf16
        if (i % 3 == 0) { bits = (bits & 0xFFFFE000U) | 0x1000U; }  // a tie of fp16
        v[l] = std::bit_cast<float>(bits);
      }
      store(written.data(), v);
      for (std::int64_t l = 0; l < kLanes; ++l) {
        const std::uint16_t expected = Half::from_float(v[l]).bits;
        ASSERT_EQ(written[static_cast<std::size_t>(l)].bits, expected)
            << std::bit_cast<std::uint32_t>(static_cast<float>(v[l]));
      }
    }
  };
  check(bfloat16{});
  check(float16{});
}

TEST_F(HalfValuesTest, AddAndGeluRoundOnce) {
  for (const DType dtype : kHalves) {
    for (const std::int64_t elems : {0, 1, 9, 1000}) {
      Array a{dtype, random_floats(elems, 1, 3.0F)}, b{dtype, random_floats(elems, 2)};
      Array y{dtype, filled(elems, kNan)}, expected{dtype, filled(elems, kNan)};
      cpu_.add(a.at(0), b.at(0), y.at(0), elems, stream());
      Floats sums;
      for (std::int64_t i = 0; i < elems; ++i) {
        sums.push_back(element(a.at(0), i) + element(b.at(0), i));
      }
      EXPECT_TRUE(same_bits(y.floats(), Array(dtype, sums).floats()));

      cpu_.gelu_forward(a.at(0), y.at(0), elems, stream());
      reference::gelu_forward(a.at(0), expected.at(0), elems, Stream{});
      expect_close(y.floats(), expected.floats(), dtype);
      cpu_.gelu_backward(a.at(0), b.at(0), y.at(0), elems, stream());
      reference::gelu_backward(a.at(0), b.at(0), expected.at(0), elems, Stream{});
      expect_close(y.floats(), expected.floats(), dtype);
      EXPECT_TRUE(a.guarded() && b.guarded() && y.guarded());
    }
  }
}

TEST_F(HalfValuesTest, BiasesOfAnyDtype) {
  for (const DType dtype : kHalves) {
    for (const DType other : kAll) {
      for (const std::int64_t columns : kWidths) {
        const std::int64_t rows = 37;
        Array y{dtype, random_floats(rows * columns, 1)}, bias{other, random_floats(columns, 2)};
        Array expected{dtype, y.floats()};
        cpu_.add_bias(y.at(0), bias.at(0), rows, columns, stream());
        reference::add_bias(expected.at(0), bias.at(0), rows, columns, Stream{});
        EXPECT_TRUE(same_bits(y.floats(), expected.floats()));

        Array sum{other, random_floats(columns, 3)}, wide{DType::fp32, sum.floats()};
        cpu_.bias_gradient(y.at(0), sum.at(0), rows, columns, stream());
        reference::bias_gradient(y.at(0), wide.at(0), rows, columns, Stream{});
        // Rounded after every 32 rows: twice.
        expect_close(sum.floats(), wide.floats(), other, other == DType::fp32 ? 37.0 : 1e5);
        EXPECT_TRUE(y.guarded() && bias.guarded() && sum.guarded());
      }
    }
  }
}

TEST_F(HalfValuesTest, LayerNormWithParametersOfAnyDtype) {
  for (const DType dtype : kHalves) {
    for (const DType other : kAll) {
      for (const std::int64_t columns : kWidths) {
        const std::int64_t rows = 5;
        const std::int64_t elems = rows * columns;
        Array x{dtype, random_floats(elems, 1, 2.0F)}, dy{dtype, random_floats(elems, 2)};
        Array weight{other, random_floats(columns, 3)}, bias{other, random_floats(columns, 4)};
        Array y{dtype, filled(elems, kNan)}, expected{dtype, filled(elems, kNan)};
        Floats mean(5), inverse_std(5), unused_mean(5), unused_std(5);
        cpu_.layer_norm_forward({x.at(0), weight.at(0), bias.at(0), y.at(0), mean.data(),
                                 inverse_std.data(), rows, columns},
                                stream());
        reference::layer_norm_forward({x.at(0), weight.at(0), bias.at(0), expected.at(0),
                                       unused_mean.data(), unused_std.data(), rows, columns},
                                      Stream{});
        const double scale = 8.0;  // of a normalised value times a weight
        expect_close(y.floats(), expected.floats(), dtype, scale);

        Array dx{dtype, random_floats(elems, 5)}, dx_expected{dtype, dx.floats()};
        Array dweight{other, filled(columns, 0.0F)}, dbias{other, filled(columns, 0.0F)};
        Array dweight_expected{other, filled(columns, 0.0F)};
        Array dbias_expected{other, filled(columns, 0.0F)};
        cpu_.layer_norm_backward({x.at(0), weight.at(0), mean.data(), inverse_std.data(), dy.at(0),
                                  dx.at(0), dweight.at(0), dbias.at(0), rows, columns},
                                 stream());
        reference::layer_norm_backward(
            {x.at(0), weight.at(0), mean.data(), inverse_std.data(), dy.at(0), dx_expected.at(0),
             dweight_expected.at(0), dbias_expected.at(0), rows, columns},
            Stream{});
        const double steep =
            50.0 * std::max(1.0F, *std::max_element(inverse_std.begin(), inverse_std.end()));
        expect_close(dx.floats(), dx_expected.floats(), dtype, steep);
        expect_close(dweight.floats(), dweight_expected.floats(), other, steep);
        expect_close(dbias.floats(), dbias_expected.floats(), other, steep);
        EXPECT_TRUE(y.guarded() && dx.guarded() && dweight.guarded() && dbias.guarded());
      }
    }
  }
}

TEST_F(HalfValuesTest, EmbeddingAddsInTheTablesDtype) {
  const std::vector<std::int32_t> tokens{3, 0, 3, 2, 2, 2};
  for (const DType dtype : kHalves) {
    for (const DType table : kAll) {
      for (const std::int64_t hidden : kWidths) {
        Array wte{table, random_floats(4 * hidden, 1)}, wpe{table, random_floats(3 * hidden, 2)};
        Array y{dtype, filled(6 * hidden, kNan)}, expected{dtype, filled(6 * hidden, kNan)};
        cpu_.embedding_forward({tokens.data(), wte.at(0), wpe.at(0), y.at(0), 2, 3, hidden},
                               stream());
        reference::embedding_forward(
            {tokens.data(), wte.at(0), wpe.at(0), expected.at(0), 2, 3, hidden}, Stream{});
        EXPECT_TRUE(same_bits(y.floats(), expected.floats()));

        Array dwte{table, wte.floats()}, dwpe{table, wpe.floats()};
        cpu_.embedding_backward({tokens.data(), y.at(0), dwte.at(0), dwpe.at(0), 2, 3, hidden},
                                stream());
        reference::embedding_backward({tokens.data(), y.at(0), wte.at(0), wpe.at(0), 2, 3, hidden},
                                      Stream{});
        EXPECT_TRUE(same_bits(dwte.floats(), wte.floats()));
        EXPECT_TRUE(same_bits(dwpe.floats(), wpe.floats()));
        EXPECT_TRUE(y.guarded() && dwte.guarded() && dwpe.guarded());
      }
    }
  }
}

TEST_F(HalfValuesTest, CrossEntropyRoundsTheGradientOnce) {
  for (const DType dtype : kHalves) {
    for (const std::int64_t classes : {1, 5, 64, 1500}) {
      const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(classes - 1), 0};
      Array logits{dtype, random_floats(3 * classes, 1, 4.0F)};
      Array expected{dtype, logits.floats()}, untouched{dtype, logits.floats()};
      double loss = 0.5, expected_loss = 0.5, loss_alone = 0.5;
      cpu_.cross_entropy({untouched.at(0), targets.data(), &loss_alone, 3, classes, 0.0F, 2.0},
                         stream());
      EXPECT_TRUE(same_bits(untouched.floats(), logits.floats()));
      cpu_.cross_entropy({logits.at(0), targets.data(), &loss, 3, classes, 64.0F, 2.0}, stream());
      reference::cross_entropy(
          {expected.at(0), targets.data(), &expected_loss, 3, classes, 64.0F, 2.0}, Stream{});
      EXPECT_EQ(loss, loss_alone);
      EXPECT_NEAR(loss, expected_loss, 1e-5);
      expect_close(logits.floats(), expected.floats(), dtype, 64.0);
      EXPECT_TRUE(logits.guarded());
    }
  }
}

TEST_F(HalfValuesTest, AttentionIsTheFp32KernelsOnWidenedValues) {
  for (const DType dtype : kHalves) {
    for (const AttentionShape shape : {AttentionShape{2, 9, 3, 5}, AttentionShape{1, 70, 2, 16}}) {
      const std::int64_t rows = shape.batch * shape.seq;
      const std::int64_t hidden = shape.heads * shape.head_size;
      Array qkv{dtype, random_floats(rows * 3 * hidden, 1)},
          dy{dtype, random_floats(rows * hidden, 2)};
      Array y{dtype, filled(rows * hidden, kNan)};
      Floats lse = filled(rows * shape.heads, kNan);
      Floats workspace = filled(cpu_.attention_workspace_elems(shape, dtype, 1), kNan);
      cpu_.attention_forward({qkv.at(0), y.at(0), lse.data(), workspace.data(), shape}, stream());

      Floats wide = qkv.floats(), wide_y = filled(rows * hidden, kNan);
      Floats wide_lse = filled(rows * shape.heads, kNan);
      Floats tiles = filled(cpu_.attention_workspace_elems(shape, DType::fp32, 1), kNan);
      cpu_.attention_forward({wide.data(), wide_y.data(), wide_lse.data(), tiles.data(), shape},
                             stream());
      expect_close(y.floats(), Array(dtype, wide_y).floats(), dtype);
      EXPECT_LE(largest_difference(lse, wide_lse), 1e-5);

      Array dqkv{dtype, filled(rows * 3 * hidden, kNan)},
          expected{dtype, filled(rows * 3 * hidden, kNan)};
      cpu_.attention_backward(
          {qkv.at(0), y.at(0), lse.data(), dy.at(0), dqkv.at(0), workspace.data(), shape},
          stream());
      // y as forward has stored it, rounded.
      Floats stored_y = y.floats(), wide_dy = dy.floats(),
             wide_dqkv = filled(rows * 3 * hidden, kNan);
      cpu_.attention_backward({wide.data(), stored_y.data(), wide_lse.data(), wide_dy.data(),
                               wide_dqkv.data(), tiles.data(), shape},
                              stream());
      expect_close(dqkv.floats(), Array(dtype, wide_dqkv).floats(), dtype, 50.0);
      EXPECT_TRUE(y.guarded() && dqkv.guarded());
    }
  }
}

TEST_F(HalfValuesTest, MixedActivationsAreRefused) {
  bfloat16 half{};
  float single = 0.0F;
  EXPECT_THROW(cpu_.add(&half, &single, &single, 1, stream()), ContractError);
  EXPECT_THROW(cpu_.gelu_forward(&half, &single, 1, stream()), ContractError);
  EXPECT_THROW(cpu_.gelu_forward(ConstValues{&single, DType::fp64}, Values{&single, DType::fp64}, 1,
                                 stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels

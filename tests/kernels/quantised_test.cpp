// Weights in NF4 and int8: every backend has the reference's bits, which are bitsandbytes' where it
// was recorded (record_bitsandbytes.py).
#include "kernels/quantised/quantised.hpp"

#include <cstring>
#include <numeric>

#include "kernels/bitsandbytes_data.hpp"
#include "kernels/quantised/codes.hpp"
#include "kernels/values.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::quantised_test {
namespace {

using Codes = std::vector<std::uint8_t>;
using SignedCodes = std::vector<std::int8_t>;

template <class T>
std::vector<T> array_of(std::int64_t elems) {
  return std::vector<T>(static_cast<std::size_t>(elems));
}

float mean_of(const Floats& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return static_cast<float>(sum / std::max<double>(static_cast<double>(values.size()), 1.0));
}

/// A tensor in NF4, as the reference quantises it.
struct NF4 {
  Codes codes, absmax_codes;
  Floats absmax, scales;
  float offset;

  NF4(ConstValues values, std::int64_t elems)
      : codes(array_of<std::uint8_t>((elems + 1) / 2)),
        absmax_codes(array_of<std::uint8_t>(nf4_blocks(elems))),
        absmax(absmax_codes.size()),
        scales(array_of<float>(nf4_groups(nf4_blocks(elems)))) {
    reference::nf4_quantise({values, codes.data(), absmax.data(), elems}, Stream{});
    offset = mean_of(absmax);
    if (!std::isfinite(offset)) { offset = 1.0F; }
    reference::nf4_quantise_absmax(
        {absmax.data(), offset, absmax_codes.data(), scales.data(), nf4_blocks(elems)}, Stream{});
  }

  [[nodiscard]] NF4Weights weights() const {
    return {codes.data(), absmax_codes.data(), scales.data(), offset};
  }
};

/// A tensor in int8, as the reference quantises it.
struct Int8 {
  SignedCodes codes;
  Floats scales;

  Int8(ConstValues values, std::int64_t elems)
      : codes(array_of<std::int8_t>(elems)), scales(array_of<float>(int8_blocks(elems))) {
    reference::int8_quantise({values, codes.data(), scales.data(), elems}, Stream{});
  }
};

/// Normal values with blocks of zeros, of one value, of subnormals, and of large ones among them.
Floats weights(std::int64_t elems, unsigned seed) {
  Floats all = random_floats(elems, seed, 0.02F);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t kind = i / 64 % 23;
    if (kind == 3) { all[i] = 0.0F; }
    if (kind == 7) { all[i] = -0.25F; }
    if (kind == 11) { all[i] *= 0x1p-125F; }
    if (kind == 13) { all[i] *= 0x1p+15F; }
  }
  return all;
}

TEST(QuantisedReference, NF4ByHand) {
  const Floats values{2.0F, -2.0F, 0.0F, 1.0F, -0.25F};
  Codes codes(3), absmax_codes(1);
  Floats absmax(1), scales(1), back(5);
  reference::nf4_quantise({values.data(), codes.data(), absmax.data(), 5}, Stream{});
  EXPECT_EQ(absmax[0], 2.0F);
  // Relative to 2: 1, -1, 0; 0.5 lies between 0.389 and 0.502; -0.125 between -0.138 and -0.046.
  EXPECT_EQ(codes, (Codes{0xF0, 0x7C, 0x67}));
  reference::nf4_quantise_absmax({absmax.data(), 1.5F, absmax_codes.data(), scales.data(), 1},
                                 Stream{});
  EXPECT_EQ(scales[0], 0.5F);
  EXPECT_EQ(absmax_codes[0], 255);  // 0.5 is the largest
  reference::nf4_dequantise(
      {{codes.data(), absmax_codes.data(), scales.data(), 1.5F}, back.data(), 5}, Stream{});
  EXPECT_EQ(back, (Floats{2.0F, -2.0F, 0.0F, 2 * 0.44070982933044434F, 2 * -0.09105003625154495F}));
}

TEST(QuantisedReference, Int8ByHand) {
  const Floats values{254.0F, -254.0F, 1.0F, 3.0F, 5.0F, -1.0F, 100.0F};
  SignedCodes codes(7);
  Floats scales(1), back(7);
  reference::int8_quantise({values.data(), codes.data(), scales.data(), 7}, Stream{});
  EXPECT_EQ(scales[0], 2.0F);
  EXPECT_EQ(codes, (SignedCodes{127, -127, 0, 2, 2, 0, 50}));  // 0.5, 1.5 and 2.5 become even
  reference::int8_dequantise({{codes.data(), scales.data()}, back.data(), 7}, Stream{});
  EXPECT_EQ(back, (Floats{254, -254, 0, 4, 4, 0, 100}));
}

// bitsandbytes' CUDA kernel (dQuantizeNF4) has exact midpoints; its implementation in PyTorch
// rounds the sum of neighbours first, which moves four of them to the next number.
TEST(QuantisedCodes, MidpointsOfNF4AreThoseOfBitsandbytesRounded) {
  constexpr float exact[] = {-0.8480964004993439F,   -0.6106329262256622F,  -0.4599952697753906F,
                             -0.33967943489551544F,  -0.23460740596055984F, -0.13791173323988914F,
                             -0.045525018125772476F, 0.03979014977812767F,  0.1202552504837513F,
                             0.2035212516784668F,    0.2920137718319893F,   0.3893125355243683F,
                             0.5016634166240692F,    0.6427869200706482F,   0.8614784181118011F};
  const std::vector<std::uint32_t> moved{0, 8, 12, 14};
  for (std::uint32_t i = 0; i < 15; ++i) {
    const float midpoint = kNF4Map.midpoints[i];
    const bool is_moved = std::count(moved.begin(), moved.end(), i) > 0;
    EXPECT_EQ(midpoint != exact[i], is_moved) << i;
    EXPECT_EQ(std::nextafter(exact[i], midpoint), midpoint) << i;
    EXPECT_EQ(kNF4Map.code(midpoint), i);
    EXPECT_EQ(kNF4Map.code(std::nextafter(midpoint, 2.0F)), i + 1);
  }
  EXPECT_EQ(kNF4Map.code(kNan), 0U);
  EXPECT_EQ(kNF4Map.code(kInfinity), 15U);
}

TEST(QuantisedCodes, TheDynamicMapIsThatOfBitsandbytes) {
  const std::vector<std::uint32_t> recorded = bitsandbytes::words(bitsandbytes::kDynamicMap);
  ASSERT_EQ(recorded.size(), 256U);
  EXPECT_EQ(bits_of(kDynamicMap.values), recorded);
  for (std::uint32_t i = 0; i < 255; ++i) {
    ASSERT_LT(kDynamicMap.values[i], kDynamicMap.values[i + 1]);
    EXPECT_EQ(kDynamicMap.code(kDynamicMap.values[i]), i);
    EXPECT_EQ(kDynamicMap.code(kDynamicMap.midpoints[i]), i);
  }
}

class QuantisedKernels : public BackendTest {
 protected:
  /// The backend's codes are those of the reference.
  void expect_nf4(const Floats& values, DType dtype, std::int64_t offset = 0) {
    const std::int64_t elems = std::ssize(values), blocks = nf4_blocks(elems);
    HostValues host{dtype, values};
    const NF4 expected{host.view(), elems};
    DeviceValues from{bench(), values, dtype, offset};
    DeviceArray<std::uint8_t> codes{bench(), (elems + 1) / 2, offset};
    DeviceArray<std::uint8_t> absmax_codes{bench(), blocks, offset};
    DeviceArray<float> absmax{bench(), blocks, offset};
    DeviceArray<float> scales{bench(), nf4_groups(blocks), offset};
    nf4_quantise({from, codes.data(), absmax.data(), elems}, stream());
    nf4_quantise_absmax(
        {absmax.data(), expected.offset, absmax_codes.data(), scales.data(), blocks}, stream());
    EXPECT_EQ(codes.read(), expected.codes);
    EXPECT_EQ(bits_of(absmax.read()), bits_of(expected.absmax));
    EXPECT_EQ(absmax_codes.read(), expected.absmax_codes);
    EXPECT_EQ(bits_of(scales.read()), bits_of(expected.scales));
    expect_nf4_values(expected, dtype, elems, offset);
  }

  /// The backend's values of a part that begins at `first` are those of the reference.
  void expect_nf4_values(const NF4& tensor, DType dtype, std::int64_t elems, std::int64_t offset,
                         std::int64_t first = 0) {
    const std::int64_t blocks = nf4_blocks(elems);
    const NF4Weights part = tensor.weights().at(first);
    HostValues expected{dtype, filled(elems, 0.0F)};
    reference::nf4_dequantise({part, expected.view(), elems}, Stream{});
    const std::int64_t lead = first / kNF4Block % kNF4Group;
    // Copies of just what belongs to the part.
    const auto copy = [&](const auto* from, std::int64_t count) {
      return std::vector(from, from + count);
    };
    DeviceArray codes{bench(), copy(part.codes, (elems + 1) / 2), offset};
    DeviceArray absmax_codes{bench(), copy(part.absmax_codes, blocks), offset};
    DeviceArray scales{bench(), copy(part.scales, nf4_groups(elems == 0 ? 0 : lead + blocks)),
                       offset};
    DeviceValues to{bench(), elems, dtype, offset};
    nf4_dequantise(
        {{codes.data(), absmax_codes.data(), scales.data(), tensor.offset, first}, to, elems},
        stream());
    EXPECT_TRUE(same_values(to.read(), expected.bytes(), dtype));
  }

  void expect_int8(const Floats& values, DType dtype, std::int64_t offset = 0) {
    const std::int64_t elems = std::ssize(values);
    HostValues host{dtype, values};
    const Int8 expected{host.view(), elems};
    DeviceValues from{bench(), values, dtype, offset};
    DeviceArray<std::int8_t> codes{bench(), elems, offset};
    DeviceArray<float> scales{bench(), int8_blocks(elems), offset};
    int8_quantise({from, codes.data(), scales.data(), elems}, stream());
    EXPECT_EQ(codes.read(), expected.codes);
    EXPECT_EQ(bits_of(scales.read()), bits_of(expected.scales));
    expect_int8_values(expected, dtype, elems, offset);
  }

  void expect_int8_values(const Int8& tensor, DType dtype, std::int64_t elems, std::int64_t offset,
                          std::int64_t first = 0) {
    const Int8Weights part = Int8Weights{tensor.codes.data(), tensor.scales.data()}.at(first);
    HostValues expected{dtype, filled(elems, 0.0F)};
    reference::int8_dequantise({part, expected.view(), elems}, Stream{});
    const std::int64_t lead = elems == 0 ? 0 : first % kInt8Block;
    DeviceArray codes{bench(), SignedCodes(part.codes, part.codes + elems), offset};
    DeviceArray scales{bench(), Floats(part.scales, part.scales + int8_blocks(lead + elems)),
                       offset};
    DeviceValues to{bench(), elems, dtype, offset};
    int8_dequantise({{codes.data(), scales.data(), first}, to, elems}, stream());
    EXPECT_TRUE(same_values(to.read(), expected.bytes(), dtype));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, QuantisedKernels, backends(), backend_name);

// Around blocks of 64 and 256 and groups of 16,384.
constexpr std::int64_t kElems[] = {0,   1,   31,   63,     64,     65,     255,
                                   256, 257, 1025, 16'383, 16'385, 100'003};

TEST_P(QuantisedKernels, HaveTheBitsOfTheReference) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t elems : kElems) {
      for (const std::int64_t offset : {0, 1, 4}) {
        SCOPED_TRACE(testing::Message() << elems << " + " << offset << ", " << to_string(dtype));
        expect_nf4(weights(elems, 1), dtype, offset);
        expect_int8(weights(elems, 2), dtype, offset);
      }
    }
  }
}

TEST_P(QuantisedKernels, HaveTheBitsOfTheReferenceAtRandomSizes) {
  std::mt19937 generator{5};
  for (unsigned i = 0; i < 40; ++i) {
    const std::int64_t elems = std::uniform_int_distribution<std::int64_t>{1, 40'000}(generator);
    SCOPED_TRACE(elems);
    expect_nf4(weights(elems, i), kValueDTypes[i % 3], i % 5);
    expect_int8(weights(elems, i), kValueDTypes[i % 3], i % 5);
  }
}

TEST_P(QuantisedKernels, DecideByTheMidpointOnBothSidesOfIt) {
  Floats values;
  for (const float midpoint : kNF4Map.midpoints) {
    for (const float to : {-2.0F, midpoint, 2.0F}) {
      values.push_back(std::nextafter(midpoint, to));
    }
    values.insert(values.end(), 61, 1.0F);  // the block's largest magnitude
  }
  expect_nf4(values, DType::fp32);
  // Magnitudes of blocks around 1, whose rests are midpoints of the dynamic map.
  Floats absmax;
  for (const float midpoint : kDynamicMap.midpoints) { absmax.push_back(1.0F + midpoint); }
  absmax.insert(absmax.end(), {2.0F, 0.0F});
  Codes expected(absmax.size());
  Floats scale(2);
  reference::nf4_quantise_absmax(
      {absmax.data(), 1.0F, expected.data(), scale.data(), std::ssize(absmax)}, Stream{});
  DeviceArray from{bench(), absmax};
  DeviceArray<std::uint8_t> codes{bench(), std::ssize(absmax)};
  DeviceArray<float> scales{bench(), 2};
  nf4_quantise_absmax({from.data(), 1.0F, codes.data(), scales.data(), std::ssize(absmax)},
                      stream());
  EXPECT_EQ(codes.read(), expected);
  EXPECT_EQ(scales.read(), scale);
}

// Pieces begin at blocks, groups begin at groups, and parts that are read at any multiple of 64.
TEST_P(QuantisedKernels, GiveTheBitsOfTheWholeInPieces) {
  constexpr std::int64_t elems = 100'003;
  const Floats values = weights(elems, 3);
  const NF4 whole{values.data(), elems};
  const Int8 whole_int8{values.data(), elems};
  DeviceArray from{bench(), values};
  DeviceArray<std::uint8_t> codes{bench(), (elems + 1) / 2};
  DeviceArray<std::uint8_t> absmax_codes{bench(), nf4_blocks(elems)};
  DeviceArray<float> absmax{bench(), nf4_blocks(elems)};
  DeviceArray<float> scales{bench(), nf4_groups(nf4_blocks(elems))};
  DeviceArray<std::int8_t> int8_codes{bench(), elems};
  DeviceArray<float> int8_scales{bench(), int8_blocks(elems)};
  const auto for_pieces = [](std::int64_t of, std::int64_t unit, const auto& body) {
    std::vector<std::int64_t> cuts = random_cuts(of / unit, 9, 7);
    for (std::int64_t& cut : cuts) { cut *= unit; }
    cuts.back() = of;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) { body(cuts[i], cuts[i + 1] - cuts[i]); }
  };
  for_pieces(elems, kNF4Block, [&](std::int64_t at, std::int64_t count) {
    nf4_quantise({from.data() + at, codes.data() + at / 2, absmax.data() + at / kNF4Block, count},
                 stream());
  });
  for_pieces(nf4_blocks(elems), kNF4Group, [&](std::int64_t at, std::int64_t count) {
    nf4_quantise_absmax({absmax.data() + at, whole.offset, absmax_codes.data() + at,
                         scales.data() + at / kNF4Group, count},
                        stream());
  });
  for_pieces(elems, kInt8Block, [&](std::int64_t at, std::int64_t count) {
    int8_quantise(
        {from.data() + at, int8_codes.data() + at, int8_scales.data() + at / kInt8Block, count},
        stream());
  });
  EXPECT_EQ(codes.read(), whole.codes);
  EXPECT_EQ(absmax_codes.read(), whole.absmax_codes);
  EXPECT_EQ(scales.read(), whole.scales);
  EXPECT_EQ(int8_codes.read(), whole_int8.codes);
  EXPECT_EQ(int8_scales.read(), whole_int8.scales);
  for_pieces(elems, kNF4Block, [&](std::int64_t at, std::int64_t count) {
    SCOPED_TRACE(testing::Message() << count << " from " << at);
    expect_nf4_values(whole, DType::bf16, count, 0, at);
    expect_int8_values(whole_int8, DType::bf16, count, 0, at);
  });
}

// The bounds of the header.
TEST_P(QuantisedKernels, LoseNoMoreThanTheGapsOfTheirMaps) {
  constexpr std::int64_t elems = 50'000;
  const Floats values = random_floats(elems, 9, 0.02F);
  const NF4 tensor{values.data(), elems};
  const Int8 int8{values.data(), elems};
  DeviceArray codes{bench(), tensor.codes}, absmax_codes{bench(), tensor.absmax_codes};
  DeviceArray scales{bench(), tensor.scales}, int8_scales{bench(), int8.scales};
  DeviceArray int8_codes{bench(), int8.codes};
  DeviceArray<float> to{bench(), elems}, int8_to{bench(), elems};
  nf4_dequantise(
      {{codes.data(), absmax_codes.data(), scales.data(), tensor.offset}, to.data(), elems},
      stream());
  int8_dequantise({{int8_codes.data(), int8_scales.data()}, int8_to.data(), elems}, stream());
  const Floats back = to.read(), int8_back = int8_to.read();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double absmax = tensor.absmax[i / 64];
    const double d = 0.0071 * tensor.scales[i / 64 / 256] + 0x1p-23 * absmax;
    ASSERT_LE(std::abs(double{back[i]} - values[i]), 0.152 * absmax + d * (1 + 0x1p-23)) << i;
    ASSERT_LE(std::abs(double{int8_back[i]} - values[i]),
              0.5 * int8.scales[i / 256] * (1 + 0x1p-13))
        << i;
  }
}

TEST_P(QuantisedKernels, ShowBlocksThatAreNotFiniteAndLeaveTheOthersAlone) {
  Floats values = weights(4096, 4);
  values[70] = kInfinity;
  values[300] = kNan;
  values[301] = -kInfinity;
  values[4095] = -kNan;
  for (const DType dtype : kValueDTypes) {
    expect_nf4(values, dtype);
    expect_int8(values, dtype);
  }
  const NF4 tensor{values.data(), 4096};
  const Int8 int8{values.data(), 4096};
  for (std::size_t b = 0; b < 64; ++b) {
    EXPECT_EQ(std::isnan(tensor.absmax[b]), b == 4 || b == 63);
    EXPECT_EQ(std::isinf(tensor.absmax[b]), b == 1);
  }
  EXPECT_TRUE(std::isinf(int8.scales[0]) && std::isnan(int8.scales[1]));
  EXPECT_TRUE(std::isfinite(int8.scales[2]) && std::isnan(int8.scales[15]));
}

TEST_P(QuantisedKernels, TakeEveryCode) {
  const std::int64_t elems = 256 * 64;
  NF4 tensor{random_floats(elems, 1).data(), elems};
  for (std::size_t i = 0; i < tensor.codes.size(); ++i) {
    tensor.codes[i] = static_cast<std::uint8_t>(i);
  }
  for (std::size_t b = 0; b < 256; ++b) { tensor.absmax_codes[b] = static_cast<std::uint8_t>(b); }
  Int8 int8{random_floats(elems, 1).data(), elems};
  for (std::size_t i = 0; i < int8.codes.size(); ++i) {
    int8.codes[i] = static_cast<std::int8_t>(static_cast<int>(i % 256) - 128);
  }
  for (const DType dtype : kValueDTypes) {
    expect_nf4_values(tensor, dtype, elems, 0);
    expect_int8_values(int8, dtype, elems, 0);
  }
}

TEST_P(QuantisedKernels, HaveTheBitsOfBitsandbytes) {
  for (const bitsandbytes::Recorded& recorded : bitsandbytes::kRecorded) {
    SCOPED_TRACE(recorded.name);
    const std::int64_t elems = recorded.elems, blocks = nf4_blocks(elems);
    const Floats values = bitsandbytes::values(recorded);
    DeviceValues from{bench(), values, recorded.dtype};
    DeviceArray<std::uint8_t> codes{bench(), (elems + 1) / 2}, absmax_codes{bench(), blocks};
    DeviceArray<float> absmax{bench(), blocks}, scales{bench(), nf4_groups(blocks)};
    const float offset = std::bit_cast<float>(recorded.offset);
    nf4_quantise({from, codes.data(), absmax.data(), elems}, stream());
    nf4_quantise_absmax({absmax.data(), offset, absmax_codes.data(), scales.data(), blocks},
                        stream());
    EXPECT_EQ(bitsandbytes::hash_of(codes.read()), recorded.codes);
    EXPECT_EQ(bitsandbytes::hash_of(absmax.read()), recorded.absmax);
    EXPECT_EQ(absmax_codes.read(), bitsandbytes::bytes(recorded.absmax_codes));
    EXPECT_EQ(bits_of(scales.read()), bitsandbytes::words(recorded.scales));
    for (std::size_t d = 0; d < 3; ++d) {
      DeviceValues to{bench(), elems, kValueDTypes[d]};
      nf4_dequantise({{codes.data(), absmax_codes.data(), scales.data(), offset}, to, elems},
                     stream());
      EXPECT_EQ(bitsandbytes::hash_of(to.read()), recorded.dequantised[d])
          << to_string(kValueDTypes[d]);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::quantised_test

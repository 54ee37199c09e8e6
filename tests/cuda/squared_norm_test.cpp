#include "cuda/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kSpanElems = kSquaredNormSpan * kSquaredNormBlock;

class CudaSquaredNormTest : public CudaTest {
 protected:
  double norm(ConstValues x, std::int64_t elems) {
    DeviceArray<double> sum{bench(), std::vector<double>{0.125}};
    table().squared_norm(x, elems, sum.data(), stream());
    return sum.read().front();
  }
  void expect_norm(std::int64_t elems, DType dtype, std::int64_t offset) {
    const Floats x = random_floats(elems, 5);
    DeviceValues device{bench(), x, dtype, offset};
    const Bytes host = encoded(x, dtype);
    double expected = 0.125;
    reference::squared_norm({host.data(), dtype}, elems, &expected, Stream{});
    EXPECT_EQ(norm(device.values(), elems), expected)
        << elems << " " << to_string(dtype) << " at " << offset;
  }
};

TEST_F(CudaSquaredNormTest, HasTheReferencesBits) {
  for (const DType dtype : kElementTypes) {
    for (const std::int64_t elems : kSizes) { expect_norm(elems, dtype, 0); }
    for (const std::int64_t elems : {4095, 4096, 4097, 70'000}) { expect_norm(elems, dtype, 0); }
    for (const std::int64_t offset : {1, 2, 3}) { expect_norm(9001, dtype, offset); }
  }
}

TEST_F(CudaSquaredNormTest, AddsSpansInOrder) {
  expect_norm(kSpanElems, DType::bf16, 0);
  expect_norm(3 * kSpanElems + 5001, DType::fp32, 0);
}

TEST_F(CudaSquaredNormTest, GoesOverALongArrayInPieces) {
  StreamState& state = *stream().state();
  const StreamWorkspace whole = state.workspace();
  state.lend({whole.data, 2 * (kSquaredNormSpan + 1) * sizeof(double)});  // two spans
  expect_norm(5 * kSpanElems + 77, DType::bf16, 0);
  state.lend({whole.data, kSquaredNormSpan * sizeof(double)});
  EXPECT_THROW((void)norm(nullptr, 1), ContractError);
  state.lend({});
  EXPECT_THROW((void)norm(nullptr, 1), ContractError);
  state.lend(whole);
}

TEST_F(CudaSquaredNormTest, IsFiniteExactlyIfEveryElementIs) {
  for (const std::size_t at : {0U, 17U, 4999U}) {
    Floats x = random_floats(5000, 8);
    x[at] = std::numeric_limits<float>::max();
    EXPECT_TRUE(std::isfinite(norm(DeviceValues{bench(), x, DType::fp32}.values(), 5000)));
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      x[at] = bad;
      EXPECT_FALSE(std::isfinite(norm(DeviceValues{bench(), x, DType::fp32}.values(), 5000)));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels

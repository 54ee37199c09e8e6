#include "tessera/base/shape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/view.hpp"

namespace tessera::shape_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(Shape{}.elems(), 1);
  EXPECT_EQ(Shape{}.rank(), 0);
  EXPECT_EQ((Shape{3, 4}).elems(), 12);
  EXPECT_EQ((Shape{3, 4}).rank(), 2);
  EXPECT_EQ((Shape{5}).dims(), std::vector<std::int64_t>{5});
  EXPECT_EQ((Shape{7, 0, 2}).elems(), 0);
}

TEST(Shape, MayHaveAsManyElementsAs63BitsCount) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((Shape{most, 1}).elems(), most);
  const auto one_more = [&] { (void)Shape{most, 2}; };
  EXPECT_THAT(one_more, ThrowsMessage<ContractError>(
                            AllOf(HasSubstr("9223372036854775807, 2"), HasSubstr("2^63"))));
  EXPECT_THROW((Shape{1LL << 32, 1LL << 31}), ContractError);
  EXPECT_NO_THROW((Shape{1LL << 32, (1LL << 31) - 1}));
}

// One extent of zero is enough, even where the product of the others overflows.
TEST(Shape, AnyExtentOfZeroMeansNoElements) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ((Shape{0, huge, huge}).elems(), 0);
  EXPECT_EQ((Shape{huge, huge, 0}).elems(), 0);
}

TEST(Shape, RefusesNegativeExtents) {
  const auto negative = [] { (void)Shape{3, -1}; };
  EXPECT_THAT(negative,
              ThrowsMessage<ContractError>(AllOf(HasSubstr("[3, -1]"), HasSubstr("negative"))));
  EXPECT_THROW((Shape{0, -1}), ContractError);
}

TEST(Shape, IsWrittenInBrackets) {
  EXPECT_EQ((Shape{3, 4}).to_string(), "[3, 4]");
  EXPECT_EQ(Shape{}.to_string(), "[]");
}

TEST(Shape, ReturnsItsExtentsByIndex) {
  const Shape shape{3, 4, 5};
  ASSERT_EQ(shape.size(), 3U);
  for (std::size_t i = 0; i < shape.size(); ++i) { EXPECT_EQ(shape[i], shape.dims()[i]); }
  EXPECT_EQ(Shape{}.size(), 0U);
  EXPECT_THROW((void)shape[3], ContractError);
  EXPECT_THROW((void)Shape{}[0], ContractError);
}

TEST(Shape, IsEqualByExtents) {
  EXPECT_EQ((Shape{2, 6}), (Shape{std::vector<std::int64_t>{2, 6}}));
  EXPECT_NE((Shape{2, 6}), (Shape{3, 4}));
}

TEST(DType, NamesAndSizesAgree) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp64}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(to_string(DType::bf16), "bf16");
  EXPECT_EQ(size_of(DType::fp64), 8U);
  EXPECT_EQ(size_of(DType::fp32), 4U);
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::fp16), 2U);
}

TEST(DType, AnUnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* name : {"", "FP32", "float32", "fp32 ", "int8"}) {
    EXPECT_THAT([&] { (void)parse_dtype(name); },
                ThrowsMessage<ConfigError>(HasSubstr("known are fp32, bf16, fp16, fp64")));
  }
}

TEST(View, SlicesByElements) {
  std::vector<std::uint16_t> data(10);
  const View view{data.data(), 10, DType::bf16};
  EXPECT_EQ(view.bytes(), 20U);
  const View part = view.slice(3, 4);
  EXPECT_EQ(part.data, data.data() + 3);
  EXPECT_EQ(part.elems, 4);
  EXPECT_EQ(part.dtype, DType::bf16);
  const ConstView reading = ConstView{view}.slice(9, 1);
  EXPECT_EQ(reading.data, data.data() + 9);
  EXPECT_EQ(reading.bytes(), 2U);
}

}  // namespace
}  // namespace tessera::shape_test

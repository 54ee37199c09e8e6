#include "cuda/values.hpp"

namespace tessera::kernels {
namespace {

struct Shape {
  std::int64_t samples;
  std::int64_t sample_elems;
};

class CudaDropoutTest : public CudaTest {
 protected:
  void expect_dropped(const Shape& shape, DType dtype, std::int64_t offset) {
    const std::int64_t elems = shape.samples * shape.sample_elems;
    const Floats x = random_floats(elems, 1);
    DeviceValues in{bench(), x, dtype, offset};
    DeviceValues out{bench(), elems, dtype, offset};
    Dropout args{.x = in.values(),
                 .y = out.values(),
                 .samples = shape.samples,
                 .sample_elems = shape.sample_elems,
                 .p = 0.3F,
                 .key = {.seed = 5, .step = 11, .site = 2, .first_sample = (1LL << 33) + 3}};
    table().dropout(args, stream());
    const Bytes host = encoded(x, dtype);
    Bytes expected(host.size());
    args.x = {host.data(), dtype};
    args.y = {expected.data(), dtype};
    reference::dropout(args, Stream{});
    EXPECT_EQ(out.read(), expected) << shape.samples << " x " << shape.sample_elems << " "
                                    << to_string(dtype) << " at " << offset;
  }
};

TEST_F(CudaDropoutTest, HasTheReferencesBits) {
  for (const DType dtype : kElementTypes) {
    for (const std::int64_t elems : kSizes) { expect_dropped({1, elems}, dtype, 0); }
    expect_dropped({3, 512}, dtype, 0);   // tiles throughout
    expect_dropped({5, 1032}, dtype, 0);  // and some single elements in each sample
    expect_dropped({3, 1001}, dtype, 0);  // samples that begin anywhere
    expect_dropped({2, 512}, dtype, 1);
    expect_dropped({0, 512}, dtype, 0);
  }
}

TEST_F(CudaDropoutTest, WorksInPlace) {
  const Floats x = random_floats(2048, 4);
  DeviceValues values{bench(), x, DType::bf16};
  const Dropout args{
      .x = values.values(), .y = values.values(), .samples = 2, .sample_elems = 1024, .p = 0.5F};
  table().dropout(args, stream());
  Bytes expected = encoded(x, DType::bf16);
  Dropout twin = args;
  twin.x = {expected.data(), DType::bf16};
  twin.y = {expected.data(), DType::bf16};
  reference::dropout(twin, Stream{});
  EXPECT_EQ(values.read(), expected);
}

}  // namespace
}  // namespace tessera::kernels

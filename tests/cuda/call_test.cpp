#include <stdexcept>

#include "cuda/support.hpp"

namespace tessera::test::call_test {
namespace {

using CudaCallTest = CudaTest;

TEST_F(CudaCallTest, RunsAtOnceAndWhatItEnqueuesIsInOrder) {
  DeviceArray<float> x{bench(), std::vector<float>{1.0F, 2.0F}};
  table().scale(x.data(), 2.0F, 2, stream());
  bool ran = false;
  table().call(
      [&] {
        ran = true;
        table().add(x.data(), x.data(), x.data(), 2, stream());
      },
      stream());
  EXPECT_TRUE(ran);
  EXPECT_EQ(x.read(), (std::vector<float>{4.0F, 8.0F}));
}

TEST_F(CudaCallTest, AnExceptionEndsTheStream) {
  const OwnedStream side = device().make_side_stream("ended");
  const auto fail = [] { throw std::runtime_error{"a user's"}; };
  EXPECT_THROW(table().call(fail, side.get()), std::runtime_error);
  bool ran = false;
  EXPECT_THROW(table().call([&] { ran = true; }, side.get()), std::runtime_error);
  EXPECT_FALSE(ran);
  EXPECT_THROW(side.get().wait(), std::runtime_error);
}

}  // namespace
}  // namespace tessera::test::call_test

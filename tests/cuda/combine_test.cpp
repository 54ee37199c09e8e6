#include "cuda/values.hpp"
#include "support/rank_values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

using test::HostTensor;
using RankValues = test::Values;

/// A tensor's bytes on the device.
class Placed {
 public:
  Placed(CudaBench& bench, HostTensor tensor, std::int64_t offset)
      : array_{bench, bytes_of(tensor),
               offset * static_cast<std::int64_t>(size_of(tensor.dtype()))} {}
  [[nodiscard]] void* data() { return array_.data(); }
  [[nodiscard]] Bytes read() { return array_.read(); }

  static Bytes bytes_of(HostTensor& tensor) {
    const View view = tensor.view();
    Bytes bytes(view.bytes());
    if (!bytes.empty()) { std::memcpy(bytes.data(), view.data, bytes.size()); }
    return bytes;
  }

 private:
  DeviceArray<std::byte> array_;
};

class CudaCombineTest : public CudaTest {
 protected:
  /// Offset of source s is s * skew.
  void expect_combined(DType dtype, ReduceOp op, int sources, std::int64_t elems,
                       std::int64_t skew = 0) {
    const auto tensors = test::rank_tensors(dtype, elems, sources, RankValues::random);
    HostTensor expected = in_rank_order(tensors, op);
    std::vector<std::unique_ptr<Placed>> placed;
    std::vector<const void*> from;
    for (const HostTensor& tensor : tensors) {
      placed.push_back(std::make_unique<Placed>(
          bench(), tensor, 3 + static_cast<std::int64_t>(placed.size()) * skew));
      from.push_back(placed.back()->data());
    }
    Placed apart{bench(), HostTensor{dtype, elems}, 3};
    table().combine(apart.data(), from, elems, dtype, op, stream());
    const std::string what = std::string{to_string(dtype)} + " x " + std::to_string(sources) +
                             ", " + std::to_string(elems);
    EXPECT_EQ(apart.read(), Placed::bytes_of(expected)) << what;
    Placed& into = *placed[static_cast<std::size_t>(sources) / 2];
    table().combine(into.data(), from, elems, dtype, op, stream());
    EXPECT_EQ(into.read(), Placed::bytes_of(expected)) << what << ", in place";
  }
};

TEST_F(CudaCombineTest, GivesTheBitsOfAPlainLoopWhereverItWrites) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const int sources : {1, 2, 3, 4, 5, 8, 9}) {
        for (const std::int64_t elems : {0, 1, 31, 33, 257, 1003}) {
          expect_combined(dtype, op, sources, elems);
        }
      }
      expect_combined(dtype, op, 3, 1003, 1);
    }
  }
}

TEST_F(CudaCombineTest, TakesManySources) {
  for (const int sources : {64, 65, 300}) {
    expect_combined(DType::bf16, ReduceOp::sum, sources, 333);
    expect_combined(DType::fp64, ReduceOp::max, sources, 333);
  }
  expect_combined(DType::fp32, ReduceOp::sum, 1024, 65);
}

TEST_F(CudaCombineTest, CoversALongArray) {
  expect_combined(DType::fp32, ReduceOp::sum, 4, 100'003);
  expect_combined(DType::bf16, ReduceOp::sum, 2, 100'003);
}

TEST_F(CudaCombineTest, ANaNOnAnyRankStaysInTheMaximum) {
  for (const std::size_t where : {0U, 1U, 2U}) {
    std::vector<std::unique_ptr<DeviceArray<float>>> placed;
    std::vector<const void*> from;
    for (std::size_t s = 0; s < 3; ++s) {
      Floats x(40, -kInfinity);
      if (s == where) { x[17] = kNan; }
      placed.push_back(std::make_unique<DeviceArray<float>>(bench(), x));
      from.push_back(placed.back()->data());
    }
    DeviceArray<float> to{bench(), 40};
    table().combine(to.data(), from, 40, DType::fp32, ReduceOp::max, stream());
    const Floats result = to.read();
    EXPECT_TRUE(std::isnan(result[17])) << "NaN on rank " << where;
    EXPECT_EQ(result[16], -kInfinity);
  }
}

TEST_F(CudaCombineTest, RefusesNoSourcesAndTooMany) {
  DeviceArray<float> to{bench(), 1};
  const std::vector<const void*> many(kMostCombined + 1, to.data());
  EXPECT_THROW(table().combine(to.data(), {}, 1, DType::fp32, ReduceOp::sum, stream()),
               ContractError);
  EXPECT_THROW(table().combine(to.data(), many, 1, DType::fp32, ReduceOp::sum, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/combine/combine.hpp"

#include <cstring>

#include "kernels/values.hpp"
#include "support/host_tensor.hpp"
#include "support/rank_values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::combine_test {
namespace {

using test::HostTensor;
using test::in_rank_order;
using RankValues = test::Values;

std::vector<const void*> addresses(std::vector<HostTensor>& tensors) {
  std::vector<const void*> all;
  for (HostTensor& t : tensors) { all.push_back(t.view().data); }
  return all;
}

void expect_plain_loops_bits(DType dtype, ReduceOp op, int count, std::int64_t elems) {
  const std::vector<HostTensor> sources =
      test::rank_tensors(dtype, elems, count, RankValues::random);
  const HostTensor expected = in_rank_order(sources, op);
  std::vector<HostTensor> unchanged = sources;
  HostTensor apart{dtype, elems};
  reduce_in_order(apart.view().data, addresses(unchanged), elems, dtype, op);
  ASSERT_EQ(apart, expected) << to_string(dtype) << " x " << count << ", " << elems;
  for (int target = 0; target < count; ++target) {
    std::vector<HostTensor> copies = sources;
    HostTensor& into = copies[static_cast<std::size_t>(target)];
    reduce_in_order(into.view().data, addresses(copies), elems, dtype, op);
    ASSERT_EQ(into, expected) << "into source " << target << " of " << count;
  }
}

TEST(ReduceInOrder, GivesTheBitsOfAPlainLoopWhereverItWrites) {
  for (const DType dtype : test::kDTypes) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const int sources : {1, 2, 3, 4, 9}) {
        for (const std::int64_t elems : {0, 1, 7, 8, 33, 511, 512, 513, 2049, 5000}) {
          expect_plain_loops_bits(dtype, op, sources, elems);
          if (HasFatalFailure()) { return; }
        }
      }
    }
  }
}

TEST(CombineOnThreads, GivesTheSameBitsOnAnyNumberOfThreads) {
  constexpr std::int64_t elems = 100'003;
  const auto sources = test::rank_tensors(DType::bf16, elems, 3, RankValues::random);
  const HostTensor expected = in_rank_order(sources, ReduceOp::sum);
  for (const int threads : {1, 3}) {
    const auto device = make_cpu_device({.threads = threads});
    const OwnedStream stream = device->make_compute_stream();
    std::vector<HostTensor> copies = sources;
    const auto from = addresses(copies);
    cpu_table().combine(copies[1].view().data, from, elems, DType::bf16, ReduceOp::sum,
                        stream.get());
    EXPECT_EQ(copies[1], expected) << threads << " threads";
  }
}

Bytes bytes_of(HostTensor tensor) {
  const View view = tensor.view();
  Bytes bytes(view.bytes());
  if (!bytes.empty()) { std::memcpy(bytes.data(), view.data, bytes.size()); }
  return bytes;
}

class CombineKernels : public BackendTest {
 protected:
  /// Source s starts `3 + s * skew` elements after an aligned address.
  void expect_combined(DType dtype, ReduceOp op, int sources, std::int64_t elems,
                       std::int64_t skew = 0) {
    const auto tensors = test::rank_tensors(dtype, elems, sources, RankValues::random);
    const Bytes expected = bytes_of(in_rank_order(tensors, op));
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    std::vector<std::unique_ptr<DeviceArray<std::byte>>> placed;
    std::vector<const void*> from;
    for (const HostTensor& tensor : tensors) {
      const std::int64_t offset = 3 + std::ssize(placed) * skew;
      placed.push_back(
          std::make_unique<DeviceArray<std::byte>>(bench(), bytes_of(tensor), offset * size));
      from.push_back(placed.back()->data());
    }
    const std::string what = std::string{to_string(dtype)} + " x " + std::to_string(sources) +
                             ", " + std::to_string(elems);
    DeviceArray<std::byte> apart{bench(), elems * size, 3 * size};
    table().combine(apart.data(), from, elems, dtype, op, stream());
    EXPECT_EQ(apart.read(), expected) << what;
    DeviceArray<std::byte>& into = *placed[static_cast<std::size_t>(sources) / 2];
    table().combine(into.data(), from, elems, dtype, op, stream());
    EXPECT_EQ(into.read(), expected) << what << ", in place";
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CombineKernels, backends(), backend_name);

TEST_P(CombineKernels, GiveTheBitsOfAPlainLoopWhereverTheyWrite) {
  for (const DType dtype : test::kDTypes) {
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

TEST_P(CombineKernels, TakeManySources) {
  for (const int sources : {64, 65, 300}) {
    expect_combined(DType::bf16, ReduceOp::sum, sources, 333);
    expect_combined(DType::fp64, ReduceOp::max, sources, 333);
  }
  expect_combined(DType::fp32, ReduceOp::sum, 1024, 65);
}

TEST_P(CombineKernels, CoverALongArray) {
  expect_combined(DType::fp32, ReduceOp::sum, 4, 100'003);
  expect_combined(DType::bf16, ReduceOp::sum, 2, 100'003);
}

TEST_P(CombineKernels, TheMaximumKeepsANaNOfAnyRank) {
  for (const float others : {-kInfinity, 1.0F}) {
    for (const std::size_t where : {0U, 1U, 2U}) {
      std::vector<std::unique_ptr<DeviceArray<float>>> placed;
      std::vector<const void*> from;
      for (std::size_t s = 0; s < 3; ++s) {
        Floats x(40, others);
        if (s == where) { x[17] = kNan; }
        placed.push_back(std::make_unique<DeviceArray<float>>(bench(), x));
        from.push_back(placed.back()->data());
      }
      DeviceArray<float> to{bench(), 40};
      table().combine(to.data(), from, 40, DType::fp32, ReduceOp::max, stream());
      const Floats result = to.read();
      EXPECT_TRUE(std::isnan(result[17])) << "NaN on rank " << where;
      EXPECT_EQ(result[16], others);
    }
  }
}

TEST_P(CombineKernels, RefuseNoSourcesAndTooMany) {
  DeviceArray<float> to{bench(), 1};
  const std::vector<const void*> many(kMostCombined + 1, to.data());
  EXPECT_THROW(table().combine(to.data(), {}, 1, DType::fp32, ReduceOp::sum, stream()),
               ContractError);
  EXPECT_THROW(table().combine(to.data(), many, 1, DType::fp32, ReduceOp::sum, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels::combine_test

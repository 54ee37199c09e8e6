#include "kernels/combine/combine.hpp"

#include "kernels/support.hpp"
#include "support/host_tensor.hpp"
#include "support/rank_values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

using test::HostTensor;
using test::in_rank_order;
using test::kDTypes;
using test::rank_tensor;
using RankValues = test::Values;

struct Case {
  DType dtype;
  ReduceOp op;
  int sources;
  std::int64_t elems;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const int sources : {1, 2, 3, 4, 9}) {
        for (const std::int64_t elems : {0, 1, 7, 8, 33, 511, 512, 513, 2049, 5000}) {
          all.push_back({dtype, op, sources, elems});
        }
      }
    }
  }
  return all;
}

std::vector<const void*> addresses(std::vector<HostTensor>& tensors) {
  std::vector<const void*> all;
  for (HostTensor& t : tensors) { all.push_back(t.view().data); }
  return all;
}

TEST(ReduceInOrder, GivesTheBitsOfAPlainLoopWhereverItWrites) {
  for (const Case& c : cases()) {
    std::vector<HostTensor> sources;
    for (int s = 0; s < c.sources; ++s) {
      sources.push_back(rank_tensor(c.dtype, c.elems, s, RankValues::random));
    }
    const HostTensor expected = in_rank_order(sources, c.op);

    HostTensor apart{c.dtype, c.elems};
    reduce_in_order(apart.view().data, addresses(sources), c.elems, c.dtype, c.op);
    ASSERT_EQ(apart, expected) << to_string(c.dtype) << " x " << c.sources << ", " << c.elems;

    for (int target = 0; target < c.sources; ++target) {
      std::vector<HostTensor> copies = sources;
      HostTensor& into = copies[static_cast<std::size_t>(target)];
      reduce_in_order(into.view().data, addresses(copies), c.elems, c.dtype, c.op);
      ASSERT_EQ(into, expected) << "into source " << target << " of " << c.sources;
    }
  }
}

TEST(ReduceInOrder, ANaNOnAnyRankStaysInTheMaximum) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const int where : {0, 1, 2}) {
    std::vector<HostTensor> sources(3, HostTensor{DType::fp32, 40, 1.0});
    sources[static_cast<std::size_t>(where)].set(17, kNaN);
    HostTensor to{DType::fp32, 40};
    reduce_in_order(to.view().data, addresses(sources), 40, DType::fp32, ReduceOp::max);
    EXPECT_TRUE(std::isnan(to.at(17))) << "NaN on rank " << where;
    EXPECT_EQ(to.at(16), 1.0);
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

using CombineTest = KernelTest;

TEST_F(CombineTest, RefusesNoSourcesAndTooMany) {
  float to = 0.0F;
  const std::vector<const void*> many(kMostCombined + 1, &to);
  EXPECT_THROW(cpu_.combine(&to, {}, 1, DType::fp32, ReduceOp::sum, stream()), ContractError);
  EXPECT_THROW(cpu_.combine(&to, many, 1, DType::fp32, ReduceOp::sum, stream()), ContractError);
}

}  // namespace
}  // namespace tessera::kernels

#include "comm/reduce_in_order.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/host_tensor.hpp"
#include "support/rank_values.hpp"

namespace tessera {
namespace {

using test::HostTensor;
using test::in_rank_order;
using test::kDTypes;
using test::rank_tensor;
using test::Values;

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
      sources.push_back(rank_tensor(c.dtype, c.elems, s, Values::random));
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

}  // namespace
}  // namespace tessera

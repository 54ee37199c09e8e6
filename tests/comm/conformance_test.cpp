// One suite for every communicator: what each operation must do, at several numbers of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "support/rank_job.hpp"
#include "support/rank_values.hpp"

namespace tessera::conformance_test {
namespace {

using test::complete;
using test::concatenate;
using test::HostTensor;
using test::kDTypes;
using test::OnRanks;
using test::rank_tensor;
using test::rank_tensors;
using test::reduction_problem;
using test::slice;
using test::sum_order;
using test::Values;

// Elements per rank: zero, odd, around a vector, around the blocks and pieces of sums.
const std::vector<std::int64_t> kSizes{0, 1, 3, 64, 65, 777, 2049};

class Conformance : public OnRanks {};

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8}))),
                         test::rank_job_name);

/// Calls `check(world, dtype, elems)` for every dtype and size on all ranks.
template <class Check>
auto for_all_shapes(Check check) {
  return [check](World& world) {
    for (const DType dtype : kDTypes) {
      for (const std::int64_t elems : kSizes) {
        SCOPED_TRACE(std::string{to_string(dtype)} + " x " + std::to_string(elems));
        check(world, dtype, elems);
      }
    }
  };
}

struct Reduction {
  Values values;
  ReduceOp op;
};
const std::vector<Reduction> kReductions{{Values::integers, ReduceOp::sum},
                                         {Values::random, ReduceOp::sum},
                                         {Values::random, ReduceOp::max}};

TEST_P(Conformance, RanksShareMemoryWhereTheyAreThreads) {
  run([](World& world) {
    const Communicator& communicator = world.gather_channel().communicator;
    EXPECT_EQ(communicator.shares_memory(), communicator.name() == "local");
  });
}

TEST_P(Conformance, AllGatherConcatenatesInRankOrder) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    const auto parts = rank_tensors(dtype, n, world.size(), Values::random);
    HostTensor shard = parts[static_cast<std::size_t>(world.rank())];
    HostTensor full{dtype, n * world.size(), -1.0};
    complete(world, world.gather_channel(), Batch{"t"}.all_gather(shard.view(), full.view()));
    EXPECT_EQ(full, concatenate(parts));
    EXPECT_EQ(shard, parts[static_cast<std::size_t>(world.rank())]);
  }));
}

TEST_P(Conformance, AllGatherInPlace) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    const auto parts = rank_tensors(dtype, n, world.size(), Values::random);
    HostTensor full{dtype, n * world.size(), -1.0};
    for (std::int64_t i = 0; i < n; ++i) {
      full.set(world.rank() * n + i, parts[static_cast<std::size_t>(world.rank())].at(i));
    }
    const View own = full.view().slice(world.rank() * n, n);
    complete(world, world.gather_channel(), Batch{"t"}.all_gather(own, full.view()));
    EXPECT_EQ(full, concatenate(parts));
  }));
}

TEST_P(Conformance, ReduceScatterAddsInRankOrder) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    for (const auto& [values, op] : kReductions) {
      const auto fulls = rank_tensors(dtype, n * world.size(), world.size(), values);
      HostTensor full = fulls[static_cast<std::size_t>(world.rank())];
      HostTensor shard{dtype, n, -1.0};
      complete(world, world.reduce_channel(),
               Batch{"t"}.reduce_scatter(full.view(), shard.view(), op));
      EXPECT_EQ(reduction_problem(shard, fulls, op, sum_order(), world.rank() * n), "");
      EXPECT_EQ(full, fulls[static_cast<std::size_t>(world.rank())]);
    }
  }));
}

TEST_P(Conformance, ReduceScatterInPlace) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    for (const auto& [values, op] : kReductions) {
      const auto fulls = rank_tensors(dtype, n * world.size(), world.size(), values);
      HostTensor full = fulls[static_cast<std::size_t>(world.rank())];
      const View own = full.view().slice(world.rank() * n, n);
      complete(world, world.reduce_channel(), Batch{"t"}.reduce_scatter(full.view(), own, op));
      const HostTensor shard = slice(full, world.rank() * n, n);
      EXPECT_EQ(reduction_problem(shard, fulls, op, sum_order(), world.rank() * n), "");
    }
  }));
}

TEST_P(Conformance, AllReduceGivesEveryRankTheSameBitsAtAnySize) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    for (const auto& [values, op] : kReductions) {
      const auto inputs = rank_tensors(dtype, n, world.size(), values);
      HostTensor data = inputs[static_cast<std::size_t>(world.rank())];
      complete(world, world.reduce_channel(), Batch{"t"}.all_reduce(data.view(), op));
      EXPECT_EQ(reduction_problem(data, inputs, op, sum_order()), "");
    }
  }));
}

TEST_P(Conformance, ReduceLeavesTheResultOnTheRootAlone) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    for (int root = 0; root < world.size(); ++root) {
      for (const auto& [values, op] : kReductions) {
        const auto inputs = rank_tensors(dtype, n, world.size(), values);
        const HostTensor& mine = inputs[static_cast<std::size_t>(world.rank())];
        HostTensor data = mine;
        complete(world, world.reduce_channel(), Batch{"t"}.reduce(data.view(), op, root));
        if (world.rank() == root) {
          EXPECT_EQ(reduction_problem(data, inputs, op, sum_order()), "");
        } else {
          EXPECT_EQ(data, mine);
        }
      }
    }
  }));
}

TEST_P(Conformance, BroadcastCopiesTheRoots) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    for (int root = 0; root < world.size(); ++root) {
      HostTensor data = rank_tensor(dtype, n, world.rank(), Values::random);
      complete(world, world.gather_channel(), Batch{"t"}.broadcast(data.view(), root));
      EXPECT_EQ(data, rank_tensor(dtype, n, root, Values::random));
    }
  }));
}

TEST_P(Conformance, GatherConcatenatesOnTheRootAlone) {
  run(for_all_shapes([](World& world, DType dtype, std::int64_t n) {
    for (int root = 0; root < world.size(); ++root) {
      const auto parts = rank_tensors(dtype, n, world.size(), Values::random);
      HostTensor part = parts[static_cast<std::size_t>(world.rank())];
      HostTensor full{dtype, n * world.size(), -1.0};
      const HostTensor untouched = full;
      complete(world, world.gather_channel(), Batch{"t"}.gather(part.view(), full.view(), root));
      EXPECT_EQ(full, world.rank() == root ? concatenate(parts) : untouched);
    }
  }));
}

TEST_P(Conformance, GatherInPlaceOnTheRoot) {
  run([](World& world) {
    const auto parts = rank_tensors(DType::fp32, 33, world.size(), Values::random);
    const int root = world.size() - 1;
    HostTensor part = parts[static_cast<std::size_t>(world.rank())];
    HostTensor full{DType::fp32, std::int64_t{33} * world.size()};
    ConstView from = part.view();
    if (world.rank() == root) {
      from = full.view().slice(std::int64_t{33} * root, 33);
      std::memcpy(full.view().slice(std::int64_t{33} * root, 33).data, part.view().data,
                  part.view().bytes());
    }
    complete(world, world.gather_channel(), Batch{"t"}.gather(from, full.view(), root));
    if (world.rank() == root) { EXPECT_EQ(full, concatenate(parts)); }
  });
}

// Longer than any piece that a backend sends or adds, and a multiple of none.
TEST_P(Conformance, LongTensorsArriveWhole) {
  run([](World& world) {
    const int ranks = world.size();
    const int root = ranks - 1;
    const std::int64_t n = 2'200'003 / ranks;
    const std::int64_t total = n * ranks;
    const auto value = [](std::int64_t i, int rank) {
      return static_cast<float>((i * 7 + rank) % 1021);
    };
    std::vector<float> mine(static_cast<std::size_t>(total));
    std::vector<float> expected(mine.size());
    for (std::int64_t i = 0; i < total; ++i) {
      mine[static_cast<std::size_t>(i)] = value(i, world.rank());
      for (int r = 0; r < ranks; ++r) { expected[static_cast<std::size_t>(i)] += value(i, r); }
    }
    const auto view = [](std::vector<float>& v) {
      return View{v.data(), std::ssize(v), DType::fp32};
    };

    std::vector<float> everywhere = mine;
    std::vector<float> on_root = mine;
    std::vector<float> full = mine;
    std::vector<float> shard(static_cast<std::size_t>(n));
    std::vector<float> gathered(mine.size());
    std::vector<float> collected(mine.size());
    std::vector<float> copied = mine;
    complete(world, world.reduce_channel(),
             Batch{"long"}
                 .all_reduce(view(everywhere))
                 .reduce(view(on_root), ReduceOp::sum, root)
                 .reduce_scatter(view(full), view(shard)));
    complete(world, world.gather_channel(),
             Batch{"long"}
                 .all_gather(view(shard), view(gathered))
                 .gather(view(shard), view(collected), root)
                 .broadcast(view(copied), root));
    EXPECT_TRUE(everywhere == expected);
    EXPECT_TRUE(on_root == (world.rank() == root ? expected : mine));
    EXPECT_TRUE(full == mine);
    EXPECT_TRUE(gathered == expected);
    if (world.rank() == root) { EXPECT_TRUE(collected == expected); }
    EXPECT_EQ(copied[static_cast<std::size_t>(total) - 1], value(total - 1, root));
    EXPECT_EQ(copied[0], value(0, root));
  });
}

// Strategies that reduce gradients in different ways must get the same bits.
TEST_P(Conformance, AllReductionsAgreeToTheBit) {
  if (sum_order() == test::SumOrder::any && ranks() > 2) {
    GTEST_SKIP() << "NCCL adds more than two in orders of its own";
  }
  run([](World& world) {
    const std::int64_t n = 1000;
    const HostTensor mine =
        rank_tensor(DType::fp32, n * world.size(), world.rank(), Values::random);
    HostTensor everywhere = mine;
    HostTensor on_root = mine;
    HostTensor full = mine;
    HostTensor shard{DType::fp32, n};
    HostTensor gathered{DType::fp32, n * world.size()};
    complete(world, world.reduce_channel(), Batch{"a"}.all_reduce(everywhere.view()));
    complete(world, world.reduce_channel(), Batch{"b"}.reduce(on_root.view(), ReduceOp::sum, 0));
    complete(world, world.reduce_channel(), Batch{"c"}.reduce_scatter(full.view(), shard.view()));
    complete(world, world.gather_channel(), Batch{"d"}.all_gather(shard.view(), gathered.view()));
    EXPECT_EQ(gathered, everywhere);
    if (world.rank() == 0) { EXPECT_EQ(on_root, everywhere); }
  });
}

TEST_P(Conformance, ABatchMovesAllItsOperations) {
  run([](World& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    const int root = world.size() - 1;
    const auto parts = rank_tensors(DType::fp32, 100, world.size(), Values::random, 1);
    const auto data = rank_tensors(DType::fp32, 301, world.size(), Values::random, 2);
    const auto loss = rank_tensors(DType::fp64, 1, world.size(), Values::random, 3);
    HostTensor part = parts[me];
    HostTensor full{DType::fp32, std::int64_t{100} * world.size()};
    HostTensor summed = data[me];
    HostTensor copied = data[me];
    HostTensor losses = loss[me];
    complete(world, world.gather_channel(),
             Batch{"mixed"}
                 .all_reduce(summed.view())
                 .all_gather(part.view(), full.view())
                 .broadcast(copied.view(), root)
                 .all_reduce(losses.view()));
    EXPECT_EQ(full, concatenate(parts));
    EXPECT_EQ(reduction_problem(summed, data, ReduceOp::sum, sum_order()), "");
    EXPECT_EQ(copied, data[static_cast<std::size_t>(root)]);
    EXPECT_EQ(reduction_problem(losses, loss, ReduceOp::sum, sum_order()), "");
  });
}

TEST_P(Conformance, AnEmptyBatchIsABarrier) {
  run([](World& world) { complete(world, world.gather_channel(), Batch{"nothing"}); });
}

TEST_P(Conformance, QueuedBatchesRunInOrder) {
  run([](World& world) {
    HostTensor data{DType::fp64, 5, 1.0};
    const Channel channel = world.reduce_channel();
    test::DeviceCopies copies{world, Batch{"step"}.all_reduce(data.view())};
    for (int i = 0; i < 10; ++i) { channel.communicator.submit(copies.batch(), channel.stream); }
    channel.stream.wait();
    copies.bring_back();
    double expected = 1.0;
    for (int i = 0; i < 10; ++i) { expected *= world.size(); }
    EXPECT_EQ(data.at(4), expected);
  });
}

// A rank's stream passes a batch only when no other rank reads its memory any more.
TEST_P(Conformance, WritesAfterABatchComeAfterEveryRanksReads) {
  run([](World& world) {
    constexpr std::int64_t kElems = 1 << 15;
    constexpr std::size_t kBytes = kElems * sizeof(float);
    constexpr std::size_t kRounds = 20;
    const std::vector<float> ones(kElems, 1.0F);
    const Buffer data = world.allocate(Category::workspace, kBytes, "data");
    const Buffer results = world.allocate(Category::workspace, kRounds * kBytes, "results");
    const test::QuiesceAtExit quiesce{world};
    const auto& [communicator, stream] = world.reduce_channel();
    for (std::size_t round = 0; round < kRounds; ++round) {
      world.device().copy_in(data.data(), ones.data(), kBytes, stream);
      communicator.submit(Batch{"t"}.all_reduce({data.data(), kElems, DType::fp32}), stream);
      void* const result = static_cast<std::byte*>(results.data()) + round * kBytes;
      world.device().copy(result, data.data(), kBytes, stream);
      world.device().fill(data.data(), 0xFF, kBytes, stream);
    }
    std::vector<float> seen(kRounds * kElems);
    world.device().copy_out(seen.data(), results.data(), kRounds * kBytes, stream);
    stream.wait();
    const auto sum = static_cast<float>(world.size());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), sum), std::ssize(seen));
  });
}

TEST_P(Conformance, TheComputeStreamTakesABatchToo) {
  run([](World& world) {
    HostTensor data{DType::fp32, 3, 2.0};
    test::DeviceCopies copies{world, Batch{"t"}.all_reduce(data.view())};
    world.gather_channel().communicator.submit(copies.batch(), world.compute_stream());
    copies.bring_back();
    EXPECT_EQ(data.at(2), 2.0 * world.size());
  });
}

TEST_P(Conformance, DelaysChangeNoResult) {
  WorldOptions options;
  options.testing.delays = DelayInjection{.seed = 5, .longest = std::chrono::microseconds{200}};
  run(
      [](World& world) {
        const std::int64_t n = 129;
        for (std::uint32_t salt = 0; salt < 10; ++salt) {
          const auto fulls =
              rank_tensors(DType::fp32, n * world.size(), world.size(), Values::random, salt);
          HostTensor full = fulls[static_cast<std::size_t>(world.rank())];
          HostTensor gathered{DType::fp32, n * world.size()};
          const View own = full.view().slice(world.rank() * n, n);
          complete(world, world.reduce_channel(), Batch{"r"}.reduce_scatter(full.view(), own));
          complete(world, world.gather_channel(), Batch{"g"}.all_gather(own, gathered.view()));
          EXPECT_EQ(reduction_problem(gathered, fulls, ReduceOp::sum, sum_order()), "");
        }
      },
      options);
}

TEST_P(Conformance, ControlPathTakesTextsOfAnyLengthInRankOrder) {
  run([](World& world) {
    const auto text = [](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 1000, 'x') + std::to_string(rank);
    };
    std::vector<std::string> expected;
    for (int r = 0; r < world.size(); ++r) { expected.push_back(text(r)); }
    EXPECT_EQ(world.exchange(text(world.rank())), expected);
    EXPECT_EQ(world.gather_channel().communicator.exchange(text(world.rank())), expected);
    EXPECT_EQ(world.reduce_channel().communicator.exchange(text(world.rank())), expected);
    world.barrier();
  });
}

TEST_P(Conformance, SumAddsInRankOrder) {
  run([](World& world) {
    double expected = 0.1;
    for (int r = 1; r < world.size(); ++r) { expected += 0.1 + r * 1e-17 + r; }
    const int r = world.rank();
    EXPECT_EQ(world.sum(r == 0 ? 0.1 : 0.1 + r * 1e-17 + r), expected);
  });
}

}  // namespace
}  // namespace tessera::conformance_test

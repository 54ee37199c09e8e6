// Groups of ranks: what a communicator made by a split must do, for every kind of communicator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/rank_groups.hpp"
#include "support/rank_job.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::split_test {
namespace {

using test::complete;
using test::concatenate;
using test::HostTensor;
using test::in_rank_order;
using test::OnRanks;
using test::reduction_problem;
using test::Rule;
using test::rules;
using test::sum_order;
using test::tensors_of;

const std::vector<std::pair<DType, std::int64_t>> kShapes{
    {DType::fp32, 777}, {DType::bf16, 3}, {DType::fp64, 0}};

class SplitConformance : public OnRanks {};

INSTANTIATE_TEST_SUITE_P(Ranks, SplitConformance,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8}))),
                         test::rank_job_name);

/// Every operation once among `members`, with each rank of the group as root.
void expect_all_operations(World& world, const Channel& channel, const std::vector<int>& members,
                           DType dtype, std::int64_t n) {
  const int size = channel.communicator.size();
  const auto me = static_cast<std::size_t>(channel.communicator.rank());
  const auto parts = tensors_of(members, dtype, n, 1);
  const auto fulls = tensors_of(members, dtype, n * size, 2);
  const auto problem = [&](const HostTensor& sum, std::int64_t first = 0) {
    return reduction_problem(sum, fulls, ReduceOp::sum, sum_order(), first);
  };
  for (int root = 0; root < size; ++root) {
    HostTensor part = parts[me];
    HostTensor gathered{dtype, n * size, -1.0};
    HostTensor full = fulls[me];
    HostTensor shard{dtype, n, -1.0};
    HostTensor summed = fulls[me];
    HostTensor copied = parts[me];
    HostTensor on_root = fulls[me];
    HostTensor collected{dtype, n * size, -1.0};
    const HostTensor untouched = collected;
    complete(world, channel,
             Batch{"group"}
                 .all_gather(part.view(), gathered.view())
                 .reduce_scatter(full.view(), shard.view())
                 .all_reduce(summed.view())
                 .broadcast(copied.view(), root)
                 .reduce(on_root.view(), ReduceOp::sum, root)
                 .gather(part.view(), collected.view(), root));
    const bool is_root = channel.communicator.rank() == root;
    EXPECT_EQ(gathered, concatenate(parts));
    EXPECT_EQ(problem(shard, static_cast<std::int64_t>(me) * n), "");
    EXPECT_EQ(problem(summed), "");
    EXPECT_EQ(copied, parts[static_cast<std::size_t>(root)]);
    if (is_root) {
      EXPECT_EQ(problem(on_root), "");
    } else {
      EXPECT_EQ(on_root, fulls[me]);
    }
    EXPECT_EQ(collected, is_root ? concatenate(parts) : untouched);
  }
}

TEST_P(SplitConformance, EveryOperationStaysInItsGroup) {
  run([](World& world) {
    for (const Rule& rule : rules()) {
      SCOPED_TRACE(rule.name);
      const std::vector<int> members = rule.members(world.rank(), world.size());
      const Channel channel = world.split(world.gather_channel(), rule.group_of, rule.name);
      const Communicator& group = channel.communicator;
      ASSERT_EQ(group.size(), std::ssize(members));
      ASSERT_EQ(members[static_cast<std::size_t>(group.rank())], world.rank());
      EXPECT_EQ(group.name(), world.gather_channel().communicator.name());
      EXPECT_EQ(channel.stream.state(), world.gather_channel().stream.state());
      for (const auto& [dtype, n] : kShapes) {
        expect_all_operations(world, channel, members, dtype, n);
      }
    }
  });
}

// Longer than any piece that a backend sends or adds.
TEST_P(SplitConformance, LongTensorsArriveWhole) {
  run([](World& world) {
    const Rule pairs = rules()[2];
    const Channel channel = world.split(world.reduce_channel(), pairs.group_of, "pairs");
    const auto size = static_cast<std::size_t>(channel.communicator.size());
    const auto value = [](std::size_t i, int rank) {
      return static_cast<float>((i * 7 + static_cast<std::size_t>(rank)) % 1021);
    };
    const std::size_t n = 1'100'003;
    std::vector<float> data(n * size);
    std::vector<float> part(n);
    std::vector<float> expected(data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = value(i, world.rank());
      for (const int r : pairs.members(world.rank(), world.size())) { expected[i] += value(i, r); }
    }
    std::vector<float> gathered(data.size());
    const auto view = [](std::vector<float>& v) { return View{v.data(), std::ssize(v)}; };
    complete(world, channel, Batch{"r"}.reduce_scatter(view(data), view(part)));
    complete(world, channel, Batch{"g"}.all_gather(view(part), view(gathered)));
    complete(world, channel, Batch{"a"}.all_reduce(view(data)));
    EXPECT_TRUE(gathered == expected);
    EXPECT_TRUE(data == expected);
  });
}

TEST_P(SplitConformance, TextsArriveInTheOrderOfTheGroup) {
  run([](World& world) {
    for (const Rule& rule : rules()) {
      const Channel channel = world.split(world.reduce_channel(), rule.group_of, rule.name);
      std::vector<std::string> expected;
      for (const int rank : rule.members(world.rank(), world.size())) {
        expected.push_back(std::string(static_cast<std::size_t>(rank) * 500, 'x') + rule.name);
      }
      const auto me = static_cast<std::size_t>(channel.communicator.rank());
      EXPECT_EQ(channel.communicator.exchange(expected[me]), expected) << rule.name;
    }
  });
}

/// The error in `sum`, which must be the sum over the replica group of each member's sum over its
/// shard group. Shard groups have two ranks, so their sums do not depend on the order.
std::string hybrid_problem(const HostTensor& sum, int rank, int ranks, const Rule& shard,
                           const Rule& replica, std::uint32_t salt) {
  const std::int64_t n = sum.elems();
  std::vector<HostTensor> sums;
  for (const int other : replica.members(rank, ranks)) {
    sums.push_back(in_rank_order(tensors_of(shard.members(other, ranks), DType::fp32, n, salt),
                                 ReduceOp::sum));
  }
  return reduction_problem(sum, sums, ReduceOp::sum, sum_order());
}

// Hybrid sharding uses groups like this: gathers within a group, and at the same time sums within
// it and then over the ranks at the same place in all groups. Nothing waits in between.
TEST_P(SplitConformance, ShardAndReplicaGroupsWorkAtTheSameTime) {
  WorldOptions options;
  options.testing.delays = DelayInjection{.seed = 7, .longest = std::chrono::microseconds{200}};
  run(
      [](World& world) {
        const Rule shard = rules()[2];
        const Rule replica = rules()[3];
        const Channel gathers = world.split(world.gather_channel(), shard.group_of, "shard gather");
        const Channel sums = world.split(world.reduce_channel(), shard.group_of, "shard reduce");
        const Channel replicas =
            world.split(world.reduce_channel(), replica.group_of, "replica reduce");
        const std::vector<int> members = shard.members(world.rank(), world.size());
        const std::int64_t n = 129;
        constexpr std::uint32_t kSteps = 8;
        std::vector<HostTensor> gradients;
        std::vector<HostTensor> parts;
        std::vector<HostTensor> wholes;
        for (std::uint32_t step = 0; step < kSteps; ++step) {
          gradients.push_back(
              rank_tensor(DType::fp32, n, world.rank(), test::Values::random, step));
          parts.push_back(
              rank_tensor(DType::fp32, n, world.rank(), test::Values::random, 100 + step));
          wholes.emplace_back(DType::fp32, n * std::ssize(members));
        }
        Batch all{"all buffers"};  // one set of copies if the device has separate memory
        for (std::uint32_t step = 0; step < kSteps; ++step) {
          all.all_gather(parts[step].view(), wholes[step].view());
          all.all_reduce(gradients[step].view());
        }
        test::DeviceCopies copies{world, all};
        const Batch moved = copies.batch();
        for (std::size_t step = 0; step < kSteps; ++step) {
          const auto& gather = std::get<AllGather>(moved.ops()[2 * step]);
          const auto& gradient = std::get<AllReduce>(moved.ops()[2 * step + 1]);
          gathers.communicator.submit(Batch{"gather"}.all_gather(gather.shard, gather.full),
                                      gathers.stream);
          sums.communicator.submit(Batch{"sum"}.all_reduce(gradient.data), sums.stream);
          replicas.communicator.submit(Batch{"replicas"}.all_reduce(gradient.data),
                                       replicas.stream);
        }
        gathers.stream.wait();
        sums.stream.wait();
        copies.bring_back();
        for (std::uint32_t step = 0; step < kSteps; ++step) {
          EXPECT_EQ(wholes[step], concatenate(tensors_of(members, DType::fp32, n, 100 + step)));
          EXPECT_EQ(
              hybrid_problem(gradients[step], world.rank(), world.size(), shard, replica, step),
              "");
        }
      },
      options);
}

// A group's batches are counted separately from those of other groups and of the whole.
TEST_P(SplitConformance, OneGroupMayBeBusierThanAnother) {
  run([](World& world) {
    const Channel whole = world.gather_channel();
    const Channel group = world.split(whole, [](int rank) { return rank % 2; }, "every second");
    const int members = group.communicator.size();
    HostTensor data{DType::fp32, 5, 1.0};
    for (int i = 0; world.rank() % 2 == 1 && i < 3; ++i) {
      complete(world, group, Batch{"odd"}.all_reduce(data.view()));
      data = HostTensor{DType::fp32, 5, data.at(0) == members ? 1.0 : -100.0};
    }
    complete(world, whole, Batch{"all"}.all_reduce(data.view()));
    EXPECT_EQ(data.at(4), world.size());
    complete(world, group, Batch{"both"}.all_reduce(data.view()));
    EXPECT_EQ(data.at(4), world.size() * members);
  });
}

TEST_P(SplitConformance, AGroupCanBeSplitAgain) {
  run([](World& world) {
    const Channel half =
        world.split(world.gather_channel(), [](int rank) { return rank % 2; }, "half");
    // Ranks count within the half: its ranks 0, 2, 4, 6 of the job become 0, 2 and 4, 6.
    const Channel quarter = world.split(half, [](int rank) { return rank / 2; }, "quarter");
    const Rule quarters{"quarter", [](int rank) { return 100 * (rank % 2) + rank / 4; }};
    const std::vector<int> members = quarters.members(world.rank(), world.size());
    ASSERT_EQ(quarter.communicator.size(), std::ssize(members));
    expect_all_operations(world, quarter, members, DType::fp32, 65);
    expect_all_operations(world, half, rules()[3].members(world.rank(), world.size()), DType::fp32,
                          65);
    // The halves may be split a different number of times.
    if (world.rank() % 2 == 0) {
      (void)world.split(half, [](int) { return 0; }, "even again");
    }
    const Channel late = world.split(world.gather_channel(), [](int) { return 4; }, "late");
    expect_all_operations(world, late, rules()[0].members(world.rank(), world.size()), DType::fp32,
                          65);
  });
}

TEST_P(SplitConformance, TheWorldKeepsWhatItHasSplit) {
  run([](World& world) {
    const auto group_of = [&](const Channel& whole, const GroupOf& rule, const char* name) {
      return &world.split(whole, rule, name).communicator;
    };
    const Channel gather = world.gather_channel();
    const Channel reduce = world.reduce_channel();
    const GroupOf pairs = [](int rank) { return rank / 2; };
    const Communicator* const first = group_of(gather, pairs, "pairs");
    EXPECT_EQ(group_of(gather, [](int rank) { return rank / 2; }, "pairs"), first);
    EXPECT_NE(group_of(gather, pairs, "others"), first);
    EXPECT_NE(group_of(reduce, pairs, "pairs"), first);
    // The first two ranks are a pair as before; the others are not.
    const GroupOf other = [](int rank) { return rank < 2 ? 0 : rank; };
    if (world.size() > 3) { EXPECT_NE(group_of(gather, other, "pairs"), first); }
    const Channel again = world.split(gather, other, "pairs");
    HostTensor data{DType::fp32, 2, 1.0};
    complete(world, again, Batch{"t"}.all_reduce(data.view()));
    EXPECT_EQ(data.at(1), world.rank() < 2 && world.size() > 1 ? 2.0 : 1.0);
  });
}

TEST_P(SplitConformance, OneCommunicatorCanBeSplit) {
  run([](World& world) {
    const Channel whole = world.reduce_channel();
    HostTensor data{DType::fp32, 4, 1.0};
    for (int round = 0; round < 3; ++round) {
      const auto group = whole.communicator.split([](int rank) { return rank / 3; }, "threes");
      const double members = group->size();
      data = HostTensor{DType::fp32, 4, 1.0};
      complete(world, {*group, whole.stream}, Batch{"t"}.all_reduce(data.view()));
      EXPECT_EQ(data.at(3), members);
    }
    complete(world, whole, Batch{"t"}.all_reduce(data.view()));
  });
}

// All ranks but the last still wait in the batch when the group is destroyed.
TEST_P(SplitConformance, AGroupsPendingWorkCompletesAfterItIsDestroyed) {
  run([](World& world) {
    const Channel whole = world.reduce_channel();
    HostTensor data{DType::fp32, 4, 1.0};
    test::DeviceCopies copies{world, Batch{"t"}.all_reduce(data.view())};
    for (int round = 0; round < 2; ++round) {
      const auto group = whole.communicator.split([](int) { return 0; }, "all");
      if (world.rank() == world.size() - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
      }
      group->submit(copies.batch(), whole.stream);
    }
    whole.communicator.submit(copies.batch(), whole.stream);
    whole.stream.wait();
    copies.bring_back();
    EXPECT_EQ(data.at(3), world.size() * world.size() * world.size());
  });
}

TEST_P(SplitConformance, RecordsCountWhatAGroupMoves) {
  WorldOptions options;
  options.trace = true;
  run(
      [](World& world) {
        const Channel pairs =
            world.split(world.reduce_channel(), [](int rank) { return rank / 2; }, "pairs");
        const int size = pairs.communicator.size();
        HostTensor shard{DType::fp32, 10};
        HostTensor full{DType::fp32, std::int64_t{10} * size};
        complete(world, pairs, Batch{"gather h.0"}.all_gather(shard.view(), full.view()));
        std::vector<trace::Record> records = world.recorder()->records();
        std::erase_if(records, [](const auto& r) { return r.kind != trace::Kind::collective; });
        ASSERT_EQ(records.size(), 1U);
        EXPECT_EQ(records[0].what, "all_gather");
        EXPECT_EQ(records[0].unit, "gather h.0");
        EXPECT_EQ(records[0].bytes, 40U * static_cast<std::size_t>(size - 1));
        EXPECT_EQ(records[0].stream, std::string{"reduce"});
      },
      options);
}

void expect_usable(World& world, const Channel& channel) {
  HostTensor data{DType::fp32, 3, 1.0};
  complete(world, channel, Batch{"t"}.all_reduce(data.view()));
  EXPECT_EQ(data.at(2), channel.communicator.size());
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ContractError& error) { return error.what(); }
  return "accepted";
}

TEST_P(SplitConformance, DisagreementIsRefusedOnAllAndTheWholeStaysUsable) {
  run([](World& world) {
    const int last = world.size() - 1;
    const bool odd_one = world.rank() == last && last > 0;
    const Channel whole = world.gather_channel();
    const auto split = [&](const GroupOf& group_of, const char* name) {
      return refusal([&] { (void)world.split(whole, group_of, name); });
    };
    EXPECT_EQ(split([&](int rank) { return rank == last ? -3 : rank; }, "shard"),
              "split \"shard\": rank " + std::to_string(last) +
                  " is in group -3; groups must be 0 or more");
    if (last == 0) { return; }
    EXPECT_EQ(split([](int rank) { return rank; }, odd_one ? "shard" : "replica"),
              "rank " + std::to_string(last) +
                  " splits off \"shard\" where rank 0 splits off \"replica\"");
    EXPECT_EQ(split([&](int rank) { return odd_one && rank == 1 ? 5 : rank; }, "shard"),
              "split \"shard\": rank " + std::to_string(last) +
                  " puts rank 1 in group 5, but rank 0 puts it in group 1; pass the same rule on "
                  "every rank");
    expect_usable(world, whole);
    expect_usable(world, world.split(whole, [](int rank) { return rank; }, "shard"));
  });
}

// Ranks that did not split are refused too: they got an invalid text.
TEST_P(SplitConformance, ASplitAgainstAnotherCallIsRefusedOnAllAndTheWholeStaysUsable) {
  run([](World& world) {
    const Channel whole = world.gather_channel();
    const std::string last = std::to_string(world.size() - 1);
    const auto call = [&](bool splits) {
      return refusal([&] {
        if (splits) {
          (void)world.split(whole, [](int rank) { return rank; }, "shard");
        } else {
          (void)world.exchange("a text");
        }
      });
    };
    if (world.size() == 1) { return; }
    const bool is_last = world.rank() == world.size() - 1;
    EXPECT_EQ(call(!is_last), "rank " + last +
                                  " exchanges texts where rank 0 splits off \"shard\"; every rank "
                                  "must make the same collective calls in the same order");
    EXPECT_EQ(call(is_last), "rank " + last +
                                 " splits off \"shard\" where rank 0 exchanges texts; every rank "
                                 "must make the same collective calls in the same order");
    expect_usable(world, whole);
    EXPECT_EQ(call(true), "accepted");
  });
}

// The world's reference would outlive a user's communicator, and the address may be reused.
TEST_P(SplitConformance, TheWorldNeverSplitsAUsersCommunicator) {
  run([](World& world) {
    const Channel whole = world.reduce_channel();
    for (const Rule& rule : rules()) {
      const std::unique_ptr<Communicator> own =
          whole.communicator.split(rule.group_of, "of the user's own");
      const Channel channel{*own, whole.stream};
      const GroupOf pairs = [](int rank) { return rank / 2; };
      EXPECT_THAT(refusal([&] { (void)world.split(channel, pairs, "pairs"); }),
                  testing::HasSubstr("split another communicator with its own split"));
      expect_usable(world, channel);
      expect_usable(world, {*own->split(pairs, "pairs"), whole.stream});
    }
    expect_usable(world, whole);
  });
}

// The end of a rank affects only the groups that it belongs to.
TEST_P(SplitConformance, GroupsContinueAfterRanksOfOtherGroupsEnd) {
  run([](World& world) {
    const Channel group =
        world.split(world.gather_channel(), [](int rank) { return rank < 2 ? 0 : 1; }, "first two");
    if (world.rank() >= 2 || world.size() < 3) { return; }
    const auto begin = std::chrono::steady_clock::now();
    for (bool more = true; more;) {  // longer than it takes to consider a rank ended
      expect_usable(world, group);
      const bool early = std::chrono::steady_clock::now() - begin < std::chrono::milliseconds{400};
      more = !group.communicator.exchange(early ? "more" : "").front().empty();
    }
  });
}

// MPI's tags limit the number of splits.
TEST_P(SplitConformance, TooManySplitsAreRefusedOnAllRanks) {
  if (test::comm_kinds().front().name != "mpi" || ranks() != 2) { return; }
  run([](World& world) {
    const Channel whole = world.gather_channel();
    int made = 0;
    const auto split_on = [&] {
      for (; made < 5000; ++made) {
        (void)whole.communicator.split([](int) { return 0; }, "all");
      }
    };
    EXPECT_THROW(split_on(), ConfigError);
    EXPECT_EQ(world.exchange(std::to_string(made)), std::vector(2, std::to_string(made)));
    EXPECT_GE(made, 63);
    expect_usable(world, whole);
    expect_usable(world, world.split(world.reduce_channel(), [](int) { return 0; }, "others"));
  });
}

// A simulated rank has no others to ask: the rule determines its group.
TEST(SimulatedSplit, ASimulatedRankKnowsItsGroup) {
  constexpr int kRanks = 1 << 20;
  WorldOptions options;
  options.trace = true;
  simulate_rank(
      {.rank = 1000, .ranks = kRanks, .backend = {DeviceKind::cpu, CommKind::mpi}},
      [](World& world) {
        const std::size_t before = world.memory().report().peak_bytes;
        const Channel shard =
            world.split(world.gather_channel(), [](int rank) { return rank / 16; }, "shard");
        const Channel replica =
            world.split(world.gather_channel(), [](int rank) { return rank % 16; }, "replica");
        EXPECT_EQ(shard.communicator.rank(), 1000 % 16);
        EXPECT_EQ(shard.communicator.size(), 16);
        EXPECT_EQ(replica.communicator.rank(), 1000 / 16);
        EXPECT_EQ(replica.communicator.size(), kRanks / 16);
        EXPECT_EQ(world.memory().report().peak_bytes, before)
            << "groups use the staging of the whole";

        const View data{nullptr, 0, DType::fp32};
        shard.communicator.submit(Batch{"x"}.all_reduce(data), shard.stream);
        EXPECT_EQ(shard.communicator.exchange("here"), std::vector<std::string>(16, "here"));
        EXPECT_THROW((void)world.split(
                         world.gather_channel(), [](int) { return -1; }, "bad"),
                     ContractError);
      },
      options);
}

}  // namespace
}  // namespace tessera::split_test

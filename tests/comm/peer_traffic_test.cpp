// The bytes that each rank sends to each other rank, counted where they move.
#include "tessera/world/peer_traffic.hpp"

#include <gtest/gtest.h>

#include "support/rank_job.hpp"
#include "support/rank_values.hpp"
#include "support/signature.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::peer_traffic_test {
namespace {

using test::complete;
using test::HostTensor;

constexpr std::int64_t kElems = 192;  // a rank's part of a tensor, in fp32: one whole piece
constexpr std::size_t kPart = 4 * kElems;

class PeerTraffic : public test::OnRanks {
 protected:
  /// Every rank submits the batch that `batch_of` makes of a part and the whole; expects rank
  /// `from` to send `expected(from, to)` parts to rank `to`.
  template <class BatchOf, class Expected>
  static void expect_parts(const BatchOf& batch_of, const Expected& expected) {
    WorldOptions options;
    options.trace = true;
    run(
        [&](World& world) {
          HostTensor part{DType::fp32, kElems, 1.0};
          HostTensor whole{DType::fp32, kElems * world.size(), 1.0};
          const Batch batch = batch_of(part.view(), whole.view());
          complete(world, world.reduce_channel(), batch);
          std::vector<std::size_t> parts;
          for (int to = 0; to < world.size(); ++to) {
            const bool self = to == world.rank();
            parts.push_back(self ? 0
                                 : kPart * static_cast<std::size_t>(expected(world.rank(), to)));
          }
          EXPECT_EQ(peer_traffic(world), parts) << test::signature(batch, world.size());
        },
        options);
  }
};
// Ranks are threads: processes do not count their traffic.
INSTANTIATE_TEST_SUITE_P(Ranks, PeerTraffic,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::Values(1, 2, 3, 8)),
                         test::rank_job_name);

TEST_P(PeerTraffic, GathersAndReduceScattersSendEveryOtherRankAPart) {
  const auto a_part = [](int, int) { return 1; };
  expect_parts([](View part, View whole) { return Batch{"t"}.all_gather(part, whole); }, a_part);
  expect_parts([](View part, View whole) { return Batch{"t"}.reduce_scatter(whole, part); },
               a_part);
}

TEST_P(PeerTraffic, AllReduceSendsEveryOtherRankItsPartToReduceAndAReducedOne) {
  expect_parts([](View, View whole) { return Batch{"t"}.all_reduce(whole); },
               [](int, int) { return 2; });
}

TEST_P(PeerTraffic, BroadcastComesFromTheRootAlone) {
  const int root = ranks() - 1;
  expect_parts([&](View, View whole) { return Batch{"t"}.broadcast(whole, root); },
               [&](int from, int) { return from == root ? ranks() : 0; });
}

TEST_P(PeerTraffic, GatherGoesToTheRootAlone) {
  const int root = ranks() - 1;
  expect_parts([&](View part, View whole) { return Batch{"t"}.gather(part, whole, root); },
               [&](int, int to) { return to == root ? 1 : 0; });
}

// Each rank reduces one part and sends it to the root, which also gets its own part from each rank.
TEST_P(PeerTraffic, ReducePassesBetweenAllRanksOnItsWayToTheRoot) {
  const int root = ranks() - 1;
  expect_parts([&](View, View whole) { return Batch{"t"}.reduce(whole, ReduceOp::sum, root); },
               [&](int, int to) { return to == root ? 2 : 1; });
}

TEST_P(PeerTraffic, AGroupUsesTheJobsRankNumbers) {
  WorldOptions options;
  options.trace = true;
  run(
      [](World& world) {
        const Channel odds =
            world.split(world.gather_channel(), [](int rank) { return rank % 2; }, "odds");
        const int members = odds.communicator.size();
        HostTensor part{DType::fp32, kElems, 1.0};
        HostTensor whole{DType::fp32, kElems * members};
        complete(world, odds, Batch{"t"}.all_gather(part.view(), whole.view()));
        complete(world, world.reduce_channel(), Batch{"t"}.broadcast(part.view(), 0));
        const std::vector<std::size_t> sent = peer_traffic(world);
        for (int to = 0; to < world.size(); ++to) {
          const bool self = to == world.rank();
          const bool neighbour = to % 2 == world.rank() % 2;
          const std::size_t parts = (neighbour ? 1U : 0U) + (world.rank() == 0 ? 1U : 0U);
          EXPECT_EQ(sent[static_cast<std::size_t>(to)], self ? 0 : kPart * parts) << to;
        }
      },
      options);
}

TEST(PeerTrafficOfOtherJobs, IsRefusedWithoutRecordsAndEmptyWhereNothingMoves) {
  run_ranks(1, [](World& world) { EXPECT_THROW((void)peer_traffic(world), ContractError); });
  WorldOptions options;
  options.trace = true;
  simulate_rank(
      {.ranks = 4}, [](World& world) { EXPECT_TRUE(peer_traffic(world).empty()); }, options);
}

}  // namespace
}  // namespace tessera::peer_traffic_test

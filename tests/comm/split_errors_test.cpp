// Refusals and failures of groups' communicators: on all ranks of a group, with the job's ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/rank_groups.hpp"
#include "support/rank_job.hpp"
#include "tessera/base/error.hpp"

namespace tessera::split_errors_test {
namespace {

using test::complete;
using test::HostTensor;
using test::OnRanks;
using test::QuiesceAtExit;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What `call` throws as E; "nothing" if it returns.
template <class E>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) { return error.what(); }
  return "nothing";
}

class SplitErrors : public OnRanks {
 protected:
  /// Error texts by rank.
  using Texts = std::vector<std::string>;
  static Texts texts() { return Texts(static_cast<std::size_t>(ranks())); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, SplitErrors,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(test::rank_counts({4, 7}))),
                         test::rank_job_name);

const GroupOf kOddAndEven = [](int rank) { return rank % 2; };
const GroupOf kPairs = [](int rank) { return rank / 2; };

/// Keeps a rank alive without any call.
void compute_for(std::chrono::milliseconds time) {
  std::this_thread::sleep_for(time);
}

TEST_P(SplitErrors, AMissingCallNamesTheGroupAndTheJobsRanks) {
  WorldOptions options;
  options.deadline = std::chrono::milliseconds{300};
  const std::string error = error_of<CommError>([&] {
    run(
        [&](World& world) {
          HostTensor data{DType::fp32, 4};
          const QuiesceAtExit guard{world};
          const Channel odd = world.split(world.gather_channel(), kOddAndEven, "odd and even");
          world.barrier();
          if (world.rank() == 1) {
            complete(world, odd, Batch{"gather h.3"}.all_reduce(data.view()));
            return;
          }
          compute_for(4 * options.deadline);  // well past the peer's
        },
        options);
  });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1: all_reduce of batch \"gather h.3\""),
                           HasSubstr("channel odd and even, sequence 0"),
                           HasSubstr("rank 1 waited 300 ms for rank")));
  EXPECT_THAT(error, HasSubstr(ranks() > 5 ? "for ranks 3, 5, which" : "for rank 3, which"));
}

// The groups are hybrid's, and rank 1 is late. Its neighbour waits for it; the other groups are
// ahead and wait for the neighbour, so their deadlines pass first.
TEST_P(SplitErrors, TheMissingRankIsTracedToOneThatWaitsForNoOther) {
  WorldOptions options;
  options.deadline = std::chrono::milliseconds{600};
  const std::string error = error_of<CommError>([&] {
    run(
        [&](World& world) {
          HostTensor data{DType::fp32, 4};
          const QuiesceAtExit guard{world};
          const Channel shard = world.split(world.reduce_channel(), kPairs, "shard reduce");
          const Channel across = world.split(world.reduce_channel(), kOddAndEven, "replicas");
          world.barrier();
          if (world.rank() % 2 == 1) { return compute_for(4 * options.deadline); }
          if (world.rank() == 0) {
            compute_for(options.deadline / 2);
            complete(world, shard, Batch{"h.3"}.all_reduce(data.view()));
          }
          complete(world, across, Batch{"h.3 across groups"}.all_reduce(data.view()));
        },
        options);
  });
  EXPECT_THAT(error, HasSubstr("all_reduce of batch \"h.3 across groups\" (channel replicas, "
                               "sequence 0): rank "));
  EXPECT_THAT(error, HasSubstr(" waited 600 ms for rank 0, held up by rank 1, which did not "
                               "call all_reduce of batch \"h.3\" (channel shard reduce, "
                               "sequence 0); every rank must make the same collective calls"));
}

TEST_P(SplitErrors, RanksThatWaitForEachOtherAreAllMissing) {
  WorldOptions options;
  options.deadline = std::chrono::milliseconds{500};
  const std::string error = error_of<CommError>([&] {
    run(
        [&](World& world) {
          HostTensor data{DType::fp32, 4};
          const QuiesceAtExit guard{world};
          const Channel a = world.split(world.gather_channel(), kPairs, "a");
          const Channel b = world.split(world.reduce_channel(), kPairs, "b");
          world.barrier();
          if (world.rank() > 1) { return compute_for(4 * options.deadline); }
          complete(world, world.rank() == 0 ? a : b, Batch{"h.3"}.all_reduce(data.view()));
        },
        options);
  });
  EXPECT_THAT(error, testing::AnyOf(HasSubstr("rank 0 waited 500 ms for rank 1, which did not"),
                                    HasSubstr("rank 1 waited 500 ms for rank 0, which did not")));
}

TEST_P(SplitErrors, DifferentBatchesInOneGroupEndAllGroups) {
  Texts heard = texts();
  const std::string error = error_of<CommError>([&] {
    run([&](World& world) {
      HostTensor data{DType::fp32, 4, 1.0};
      const HostTensor before = data;
      const Channel group = world.split(world.reduce_channel(), kOddAndEven, "odd and even");
      const Channel alone = world.split(world.gather_channel(), [](int rank) { return rank; }, "a");
      if (world.rank() % 2 == 1) {
        const View view = data.view().slice(0, world.rank() == 3 ? 3 : 4);
        heard[static_cast<std::size_t>(world.rank())] =
            error_of<CommError>([&] { complete(world, group, Batch{"x"}.all_reduce(view)); });
        EXPECT_EQ(data, before) << "nothing moves";
      } else {
        EXPECT_THROW(world.barrier(), CommError);
      }
      // Calls that need not wait for another rank fail too.
      EXPECT_THROW(complete(world, alone, Batch{"y"}.all_reduce(data.view())), CommError);
    });
  });
  EXPECT_EQ(error, "rank 1: " + heard[1]);
  for (std::size_t rank = 1; rank < heard.size(); rank += 2) {
    EXPECT_EQ(
        heard[rank],
        "ranks disagree on collective 0 of channel odd and even: entry 0 of batch \"x\": rank "
        "3 issued all_reduce of 3 fp32 (sum) where rank 1 issued all_reduce of 4 fp32 (sum)");
  }
}

TEST_P(SplitErrors, ALostRankFreesTheOtherGroupsWithItsCause) {
  Texts heard = texts();
  const std::string error = error_of<FormatError>([&] {
    run([&](World& world) {
      HostTensor data{DType::fp32, 4};
      const QuiesceAtExit guard{world};
      const Channel pair =
          world.split(world.gather_channel(), [](int rank) { return rank / 2; }, "pair");
      const Channel other = world.split(world.reduce_channel(), kOddAndEven, "odd and even");
      if (world.rank() == 3) { throw FormatError{"bad file"}; }
      try {
        for (;;) {  // the even ranks do not need rank 3 at first
          complete(world, pair, Batch{"p"}.all_reduce(data.view()));
          complete(world, other, Batch{"o"}.all_reduce(data.view()));
        }
      } catch (const CommError& echo) {
        heard[static_cast<std::size_t>(world.rank())] = echo.what();
        throw;
      }
    });
  });
  EXPECT_EQ(error, "rank 3: bad file");
  for (std::size_t rank = 0; rank < heard.size(); ++rank) {
    if (rank != 3) { EXPECT_EQ(heard[rank], "rank 3: bad file"); }
  }
}

TEST_P(SplitErrors, AbortOfAGroupEndsEverything) {
  const std::string error = error_of<CommError>([&] {
    run([&](World& world) {
      HostTensor data{DType::fp32, 4};
      const QuiesceAtExit guard{world};
      const Channel group = world.split(world.gather_channel(), kOddAndEven, "odd and even");
      const Channel pair = world.split(world.reduce_channel(), [](int r) { return r / 2; }, "pair");
      if (world.rank() == 2) {
        std::thread{[&group] { group.communicator.abort("stop now"); }}.join();
      } else {
        EXPECT_EQ(error_of<CommError>([&] { world.barrier(); }), "stop now");
      }
      for (const Channel& channel : {group, pair, world.gather_channel(), world.reduce_channel()}) {
        EXPECT_EQ(error_of<CommError>(
                      [&] { complete(world, channel, Batch{"t"}.all_reduce(data.view())); }),
                  "stop now");
        EXPECT_EQ(error_of<CommError>([&] { (void)channel.communicator.exchange("x"); }),
                  "stop now");
      }
      EXPECT_EQ(
          error_of<CommError>([&] { (void)world.split(group, [](int) { return 0; }, "late"); }),
          "stop now");
    });
  });
  EXPECT_EQ(error, "rank 0: stop now") << "all bodies swallowed it; the job did not";
}

TEST_P(SplitErrors, AnUnwindingRankWithdrawsItsGroupsCallsThatHaveNotBegun) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = error_of<FormatError>([&] {
    run([](World& world) {
      HostTensor data{DType::fp32, 4};
      const Channel group = world.split(world.gather_channel(), kOddAndEven, "odd and even");
      const Channel pair = world.split(world.reduce_channel(), [](int r) { return r / 2; }, "pair");
      if (world.rank() == 0) {
        const QuiesceAtExit guard{world};
        group.communicator.submit(Batch{"a"}.all_reduce(data.view()), group.stream);
        pair.communicator.submit(Batch{"b"}.all_reduce(data.view()), pair.stream);
        throw FormatError{"cannot go on"};
      }
      world.barrier();
    });
  });
  EXPECT_EQ(error, "rank 0: cannot go on");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{20});
}

TEST_P(SplitErrors, ARankThatHasEndedIsMissedByItsGroup) {
  const std::string error = error_of<CommError>([&] {
    run([](World& world) {
      HostTensor data{DType::fp32, 4};
      const QuiesceAtExit guard{world};
      const Channel group = world.split(world.gather_channel(), kOddAndEven, "odd and even");
      if (world.rank() == 1) { complete(world, group, Batch{"alone"}.all_reduce(data.view())); }
    });
  });
  EXPECT_THAT(error,
              AllOf(HasSubstr("rank 1: all_reduce of batch \"alone\" (channel odd and even"),
                    HasSubstr("rank 1 waits for rank"), HasSubstr("whose program has ended")));
  EXPECT_THAT(error, Not(HasSubstr("rank 0")));
}

}  // namespace
}  // namespace tessera::split_errors_test

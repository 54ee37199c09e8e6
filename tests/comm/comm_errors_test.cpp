// Refusals and failures of a communicator: on every rank or on none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "support/rank_job.hpp"
#include "support/rank_values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm_errors_test {
namespace {

using test::complete;
using test::HostTensor;
using test::OnRanks;
using test::QuiesceAtExit;
using testing::AllOf;
using testing::HasSubstr;

class CommErrors : public OnRanks {
 protected:
  /// What `body` throws as `E`; "nothing" if it returns.
  template <class E>
  static std::string error_of(const std::function<void(World&)>& body,
                              const WorldOptions& options = {}) {
    try {
      run(body, options);
    } catch (const E& error) { return error.what(); }
    return "nothing";
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CommErrors,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(test::rank_counts({2, 3, 4, 8}))),
                         test::rank_job_name);

TEST_P(CommErrors, ABadSizeIsRefusedOnEveryRankBeforeAnythingMoves) {
  run([](World& world) {
    HostTensor shard{DType::fp32, 4, 1.0};
    HostTensor full{DType::fp32, 4 * world.size() + 1, -1.0};
    const HostTensor before = full;
    EXPECT_THROW(
        complete(world, world.gather_channel(), Batch{"t"}.all_gather(shard.view(), full.view())),
        ContractError);
    EXPECT_EQ(full, before);

    // The communicator stays usable, and no sequence number is lost.
    complete(world, world.gather_channel(), Batch{"t"}.all_reduce(shard.view()));
    EXPECT_EQ(shard.at(3), 1.0 * world.size());
  });
}

TEST_P(CommErrors, AMissingCallEndsByTheDeadlineAndNamesWhoIsMissing) {
  WorldOptions options;
  options.deadline = std::chrono::milliseconds{300};
  const int absent = ranks() - 1;
  const std::string error = error_of<CommError>(
      [&](World& world) {
        HostTensor data{DType::fp32, 4};
        const QuiesceAtExit guard{world};
        world.barrier();
        if (world.rank() == absent) {
          // The rank has not ended, but is late: well past the peers' deadline.
          const auto begin = std::chrono::steady_clock::now();
          while (std::chrono::steady_clock::now() - begin < 4 * options.deadline) {
            std::this_thread::yield();
          }
          return;
        }
        complete(world, world.gather_channel(), Batch{"gather h.3"}.all_reduce(data.view()));
      },
      options);
  EXPECT_THAT(error, AllOf(HasSubstr("all_reduce of batch \"gather h.3\""),
                           HasSubstr("channel gather, sequence 0"), HasSubstr("waited 300 ms")));
  EXPECT_THAT(error, HasSubstr(std::to_string(absent) + ", which did not call it"));
}

TEST_P(CommErrors, AMissingExchangeEndsTheJob) {
  WorldOptions options;
  options.deadline = std::chrono::milliseconds{50};
  const std::string error = error_of<CommError>(
      [](World& world) {
        if (world.rank() != 1) { world.barrier(); }
      },
      options);
  EXPECT_THAT(error, HasSubstr("exchange (channel gather, sequence 0)"));
}

// One rank issues something else: all ranks get the same text, which names the difference.
struct Difference {
  const char* name;
  std::function<Batch(HostTensor&, bool odd)> make;
  const char* text;
};

std::vector<Difference> differences() {
  using Tensor = HostTensor;
  return {
      {"label", [](Tensor&, bool odd) { return Batch{odd ? "gather h.1" : "gather h.0"}; },
       "issued batch \"gather h.1\" where rank 0 issued batch \"gather h.0\""},
      {"order",
       [](Tensor& t, bool odd) {
         const View a = t.view().slice(0, 4);
         const View b = t.view().slice(4, 8);
         return odd ? Batch{"x"}.broadcast(a, 0).all_reduce(b)
                    : Batch{"x"}.all_reduce(b).broadcast(a, 0);
       },
       "issued broadcast of 4 fp32 (root 0) where rank 0 issued all_reduce of 8 fp32 (sum)"},
      {"size",
       [](Tensor& t, bool odd) { return Batch{"x"}.all_reduce(t.view().slice(0, odd ? 3 : 4)); },
       "issued all_reduce of 3 fp32 (sum) where rank 0 issued all_reduce of 4 fp32 (sum)"},
      {"dtype",
       [](Tensor& t, bool odd) {
         return Batch{"x"}.all_reduce({t.view().data, 4, odd ? DType::bf16 : DType::fp32});
       },
       "issued all_reduce of 4 bf16 (sum) where rank 0 issued all_reduce of 4 fp32 (sum)"},
      {"reduction",
       [](Tensor& t, bool odd) {
         return Batch{"x"}.all_reduce(t.view(), odd ? ReduceOp::max : ReduceOp::sum);
       },
       "issued all_reduce of 12 fp32 (max) where rank 0 issued all_reduce of 12 fp32 (sum)"},
      {"root", [](Tensor& t, bool odd) { return Batch{"x"}.broadcast(t.view(), odd ? 1 : 0); },
       "issued broadcast of 12 fp32 (root 1) where rank 0 issued broadcast of 12 fp32 (root 0)"},
      {"number",
       [](Tensor& t, bool odd) {
         Batch batch = Batch{"x"}.broadcast(t.view().slice(0, 1), 0);
         return odd ? batch : batch.broadcast(t.view().slice(1, 1), 0);
       },
       "issued nothing where rank 0 issued broadcast of 1 fp32 (root 0)"},
  };
}

TEST_P(CommErrors, DifferentBatchesAreAnErrorOnEveryRankThatNamesTheFirstDifference) {
  for (const Difference& difference : differences()) {
    SCOPED_TRACE(difference.name);
    const int odd = ranks() - 1;
    std::vector<std::string> texts(static_cast<std::size_t>(ranks()));
    const std::string reported = error_of<CommError>([&](World& world) {
      HostTensor data{DType::fp32, 12, 1.0};
      const HostTensor before = data;
      try {
        complete(world, world.reduce_channel(), difference.make(data, world.rank() == odd));
      } catch (const CommError& error) {
        texts[static_cast<std::size_t>(world.rank())] = error.what();
      }
      EXPECT_EQ(data, before) << "nothing moves";
      EXPECT_THROW(world.barrier(), CommError);
    });
    EXPECT_EQ(reported, "rank 0: " + texts.front());
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts.front());
      EXPECT_THAT(text, HasSubstr("ranks disagree on collective 0 of channel reduce: "));
      EXPECT_THAT(text, HasSubstr("rank " + std::to_string(odd) + " " + difference.text));
    }
  }
}

TEST_P(CommErrors, AThrowingRankFreesTheOthersAndItsCauseIsReported) {
  const int culprit = ranks() - 1;
  const std::string error = error_of<FormatError>([culprit](World& world) {
    HostTensor data{DType::fp32, 4};
    const QuiesceAtExit guard{world};
    if (world.rank() == culprit) { throw FormatError{"bad file"}; }
    complete(world, world.gather_channel(), Batch{"t"}.all_reduce(data.view()));
    FAIL() << "a collective of all ranks ended without one";
  });
  EXPECT_EQ(error, "rank " + std::to_string(culprit) + ": bad file");
}

TEST_P(CommErrors, TheOthersLearnTheReason) {
  std::vector<std::string> heard(static_cast<std::size_t>(ranks()));
  EXPECT_THROW(run([&](World& world) {
                 if (world.rank() == 0) { throw ConfigError{"no such thing"}; }
                 try {
                   world.barrier();
                 } catch (const CommError& error) {
                   heard[static_cast<std::size_t>(world.rank())] = error.what();
                   throw;
                 }
               }),
               ConfigError);
  for (std::size_t rank = 1; rank < heard.size(); ++rank) {
    EXPECT_EQ(heard[rank], "rank 0: no such thing");
  }
}

/// What `call` throws as CommError.
std::string comm_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) { return error.what(); }
  return "nothing";
}

TEST_P(CommErrors, AbortFromAnotherThreadWakesEveryWaitAndStays) {
  const std::string error = error_of<CommError>([&](World& world) {
    HostTensor data{DType::fp32, 4};
    const QuiesceAtExit guard{world};
    const Channel gather = world.gather_channel();
    const Channel reduce = world.reduce_channel();
    const auto submit = [&](const Channel& channel) {
      channel.communicator.submit(Batch{"t"}.all_reduce(data.view()), channel.stream);
    };
    if (world.rank() == 0) {
      std::thread{[&world] {
        world.abort("stop now");
        world.abort("a second reason");
      }}.join();
    } else {
      EXPECT_EQ(comm_error_of([&] { complete(world, gather, Batch{"t"}.all_reduce(data.view())); }),
                "stop now");
    }
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(comm_error_of([&] { submit(gather); }), "stop now");
      EXPECT_EQ(comm_error_of([&] { submit(reduce); }), "stop now");
      EXPECT_EQ(comm_error_of([&] { (void)world.exchange("x"); }), "stop now");
    }
  });
  EXPECT_EQ(error, "rank 0: stop now") << "all bodies swallowed it; the job did not";
}

// An unwinding rank must not wait for peers that never arrive, nor abort them before it reports why
// it fails.
TEST_P(CommErrors, AnUnwindingRankWithdrawsCallsThatHaveNotBegun) {
  const std::string error = error_of<ContractError>([](World& world) {
    HostTensor data{DType::fp32, 4};
    const Channel gather = world.gather_channel();
    if (world.rank() == 0) {
      const QuiesceAtExit guard{world};
      gather.communicator.submit(Batch{"a"}.all_reduce(data.view()), gather.stream);
      gather.communicator.submit(Batch{"b"}.all_reduce(data.view()), gather.stream);
      throw ContractError{"rank 0 cannot go on"};
    }
    world.barrier();
  });
  EXPECT_EQ(error, "rank 0: rank 0 cannot go on");
}

TEST_P(CommErrors, QuiesceWithNothingPendingLeavesTheChannelsUsable) {
  run([](World& world) {
    HostTensor data{DType::fp32, 4, 1.0};
    try {
      const QuiesceAtExit guard{world};
      complete(world, world.gather_channel(), Batch{"a"}.all_reduce(data.view()));
      throw ContractError{"refused, and caught below"};
    } catch (const ContractError&) {  // as a trainer may
    }
    complete(world, world.gather_channel(), Batch{"b"}.all_reduce(data.view()));
    EXPECT_EQ(data.at(0), 1.0 * world.size() * world.size());
  });
}

TEST_P(CommErrors, AStreamsErrorIsReportedEvenIfTheBodyNeverChecked) {
  WorldOptions options;
  options.deadline = std::chrono::milliseconds{50};
  auto data = std::make_shared<HostTensor>(DType::fp32, 4);  // outlives the bodies
  const std::string error = error_of<CommError>(
      [data](World& world) {
        if (world.rank() != 0) { return; }
        const Channel gather = world.gather_channel();
        gather.communicator.submit(Batch{"alone"}.all_reduce(data->view()), gather.stream);
      },
      options);
  EXPECT_THAT(error, HasSubstr("rank 0: all_reduce of batch \"alone\""));
}

}  // namespace
}  // namespace tessera::comm_errors_test

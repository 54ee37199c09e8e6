// When and where batches run.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <set>

#include "device/cpu/host_task.hpp"
#include "support/rank_job.hpp"
#include "support/rank_values.hpp"

namespace tessera::streams_test {
namespace {

using test::complete;
using test::HostTensor;
using test::OnRanks;
using test::QuiesceAtExit;

class CommStreams : public OnRanks {};

INSTANTIATE_TEST_SUITE_P(Ranks, CommStreams,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8}))),
                         test::rank_job_name);

/// Holds a stream back until it is opened.
class Gate {
 public:
  explicit Gate(Stream stream) {
    device::enqueue(stream, [passed = opened_.get_future().share()] { passed.wait(); });
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

TEST_P(CommStreams, BatchesOnDifferentStreamsOvertakeEachOther) {
  run([](World& world) {
    HostTensor first{DType::fp32, 4, 1.0};
    HostTensor second{DType::fp32, 4, 10.0};
    Communicator& comm = world.gather_channel().communicator;
    const Stream held = world.gather_channel().stream;
    const Stream free = world.reduce_channel().stream;

    Gate gate{held};
    comm.submit(Batch{"first"}.all_reduce(first.view()), held);
    comm.submit(Batch{"second"}.all_reduce(second.view()), free);
    free.wait();
    EXPECT_EQ(second.at(3), 10.0 * world.size());
    EXPECT_EQ(first.at(3), 1.0);
    gate.open();
    held.wait();
    EXPECT_EQ(first.at(3), 1.0 * world.size());
  });
}

// Ranks may run two batches in different orders, and both at once: the first batch submitted on one
// rank matches the first submitted on the others.
TEST_P(CommStreams, BatchesMatchInSubmissionOrderWhicheverRunsFirst) {
  run([](World& world) {
    HostTensor first{DType::fp32, 4, 1.0};
    HostTensor second{DType::fp32, 4, 10.0};
    Communicator& comm = world.gather_channel().communicator;
    const Stream one = world.gather_channel().stream;
    const Stream other = world.reduce_channel().stream;

    Gate gate{world.rank() % 2 == 0 ? one : other};
    comm.submit(Batch{"first"}.all_reduce(first.view()), one);
    comm.submit(Batch{"second"}.all_reduce(second.view()), other);
    world.barrier();  // the other stream starts before this
    gate.open();
    one.wait();
    other.wait();
    EXPECT_EQ(first.at(3), 1.0 * world.size());
    EXPECT_EQ(second.at(3), 10.0 * world.size());
  });
}

TEST_P(CommStreams, BatchesOfGroupsAndOfTheWholeOvertakeEachOther) {
  run([](World& world) {
    HostTensor of_all{DType::fp32, 4, 1.0};
    HostTensor of_pair{DType::fp32, 4, 1.0};
    HostTensor of_others{DType::fp32, 4, 1.0};
    const Channel whole = world.gather_channel();
    const Channel pair = world.split(whole, [](int rank) { return rank / 2; }, "pair");
    const Channel others = world.split(whole, [](int rank) { return rank % 2; }, "others");
    const Stream held = whole.stream;
    const Stream free = world.reduce_channel().stream;

    // Within a group, ranks also run its batches in different orders.
    Gate gate{world.rank() % 2 == 0 ? held : free};
    whole.communicator.submit(Batch{"all"}.all_reduce(of_all.view()), held);
    pair.communicator.submit(Batch{"pair"}.all_reduce(of_pair.view()), free);
    others.communicator.submit(Batch{"others"}.all_reduce(of_others.view()), held);
    world.barrier();
    gate.open();
    held.wait();
    free.wait();
    EXPECT_EQ(of_all.at(3), 1.0 * world.size());
    EXPECT_EQ(of_pair.at(3), 1.0 * pair.communicator.size());
    EXPECT_EQ(of_others.at(3), 1.0 * others.communicator.size());
  });
}

TEST_P(CommStreams, AGatherPassesAReductionThatIsStillQueued) {
  run([](World& world) {
    HostTensor gradient{DType::fp32, 7, 1.0};
    HostTensor parameter{DType::fp32, 7, world.rank() + 1.0};
    const Channel reduce = world.reduce_channel();
    Gate gate{reduce.stream};
    reduce.communicator.submit(Batch{"reduce"}.all_reduce(gradient.view()), reduce.stream);
    complete(world, world.gather_channel(), Batch{"gather"}.broadcast(parameter.view(), 0));
    EXPECT_EQ(parameter.at(6), 1.0);
    gate.open();
    reduce.stream.wait();
    EXPECT_EQ(gradient.at(6), 1.0 * world.size());
  });
}

TEST_P(CommStreams, SubmitReturnsBeforeTheDataHasMoved) {
  run([](World& world) {
    HostTensor data{DType::fp32, 1, 1.0};
    const Channel channel = world.gather_channel();
    Gate gate{channel.stream};
    channel.communicator.submit(Batch{"later"}.all_reduce(data.view()), channel.stream);
    EXPECT_EQ(data.at(0), 1.0);
    gate.open();
    channel.stream.wait();
    EXPECT_EQ(data.at(0), 1.0 * world.size());
  });
}

TEST_P(CommStreams, RecordsSayWhatMovedAndOnWhichThread) {
  WorldOptions options;
  options.trace = true;
  run(
      [](World& world) {
        const std::int64_t n = 10;
        HostTensor shard{DType::fp32, n};
        HostTensor full{DType::fp32, n * world.size()};
        HostTensor flag{DType::fp64, 2};
        complete(world, world.gather_channel(),
                 Batch{"gather h.0"}.all_gather(shard.view(), full.view()));
        complete(world, world.reduce_channel(), Batch{"norm"}.all_reduce(flag.view()));

        std::vector<trace::Record> collectives = world.recorder()->records();
        std::erase_if(collectives, [](const auto& r) { return r.kind != trace::Kind::collective; });
        ASSERT_EQ(collectives.size(), 2U);
        const auto size = static_cast<std::size_t>(world.size());
        EXPECT_EQ(collectives[0].what, "all_gather");
        EXPECT_EQ(collectives[0].unit, "gather h.0");
        EXPECT_EQ(collectives[0].bytes, 40 * (size - 1));
        EXPECT_EQ(collectives[1].what, "all_reduce");
        EXPECT_EQ(collectives[1].unit, "norm");
        EXPECT_EQ(collectives[1].bytes, 2 * 16 * (size - 1) / size);
        for (const trace::Record& record : collectives) {
          EXPECT_NE(record.thread, trace::this_thread());
          EXPECT_LE(record.begin_ns, record.end_ns);
        }
        EXPECT_LE(collectives[0].end_ns, collectives[1].begin_ns);
      },
      options);
}

TEST_P(CommStreams, NothingIsRecordedUnlessAsked) {
  run([](World& world) { EXPECT_EQ(world.recorder(), nullptr); });
}

}  // namespace
}  // namespace tessera::streams_test

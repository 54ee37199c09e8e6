// The double of NCCL connects lazily like NCCL: at a communicator's first batch.
#include <latch>

#include "emulated_cuda/nccl/nccl_ranks.hpp"

namespace emulated_cuda::test::connect_test {
namespace {

constexpr int kLooks = 2000;

class EmulatedNcclConnect : public NcclRanks {
 protected:
  /// A sum of ones over the ranks, enqueued on a stream of `rank`.
  class Sum {
   public:
    explicit Sum(int rank) : rank_{rank}, stream_{rank}, data_{on_device(rank)} {
      (void)cudaMemcpyAsync(data_.data(), &kOne, sizeof kOne, cudaMemcpyHostToDevice, stream_);
    }
    [[nodiscard]] ncclResult_t begin(ncclComm_t comm) {
      return ncclAllReduce(data_.data(), data_.data(), 1, ncclFloat32, ncclSum, comm, stream_);
    }
    void capture_for_nothing(ncclComm_t comm) {
      ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
      EXPECT_EQ(begin(comm), ncclInProgress);
      EXPECT_EQ(settle(comm), ncclSuccess);
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
      (void)cudaGraphDestroy(graph);
    }
    [[nodiscard]] float value() {
      (void)cudaSetDevice(rank_);
      return data_.read(stream_).front();
    }

   private:
    static DeviceNumbers<float> on_device(int rank) {
      (void)cudaSetDevice(rank);
      return DeviceNumbers<float>{1};
    }

    static constexpr float kOne = 1.0F;
    int rank_;
    TestStream stream_;
    DeviceNumbers<float> data_;
  };
};

TEST_F(EmulatedNcclConnect, TheFirstBatchIsInProgressUntilAllRanksJoin) {
  std::latch others_have_looked{kRanks - 1};
  run([&](int rank, ncclComm_t& comm) {
    Sum sum{rank};
    const bool last = rank == kRanks - 1;
    if (last) { others_have_looked.wait(); }
    EXPECT_EQ(sum.begin(comm), ncclInProgress);
    if (!last) {
      int in_progress = 0;
      for (int i = 0; i < kLooks; ++i) { in_progress += state_of(comm) == ncclInProgress ? 1 : 0; }
      EXPECT_EQ(in_progress, kLooks);
      EXPECT_NE(sum.begin(comm), ncclSuccess) << "a call before the last one has ended";
      others_have_looked.count_down();
    }
    EXPECT_EQ(settle(comm), ncclSuccess);
    EXPECT_EQ(sum.value(), kRanks);
  });
}

TEST_F(EmulatedNcclConnect, LaterBatchesDoNotBlockTheHost) {
  std::latch others_have_settled{kRanks - 1};
  run([&](int rank, ncclComm_t& comm) {
    Sum sum{rank};
    EXPECT_EQ(sum.begin(comm), ncclInProgress);
    EXPECT_EQ(settle(comm), ncclSuccess);
    const bool last = rank == kRanks - 1;
    if (last) { others_have_settled.wait(); }
    EXPECT_EQ(sum.begin(comm), ncclInProgress);
    EXPECT_EQ(settle(comm), ncclSuccess);
    if (!last) { others_have_settled.count_down(); }
    EXPECT_EQ(sum.value(), kRanks * kRanks);
  });
}

TEST_F(EmulatedNcclConnect, AnAbortEndsTheWaitForARankThatNeverJoins) {
  std::latch others_have_ended{kRanks - 1};
  run([&](int rank, ncclComm_t& comm) {
    if (rank == kRanks - 1) { return others_have_ended.wait(); }
    {
      Sum sum{rank};
      EXPECT_EQ(sum.begin(comm), ncclInProgress);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      comm = nullptr;
      EXPECT_EQ(sum.value(), 1.0F) << "nothing was enqueued";
    }
    others_have_ended.count_down();
  });
}

// A graph that is never launched gives up its place in the order of batches.
TEST_F(EmulatedNcclConnect, NothingWaitsForBatchesOfAGraphThatIsNotLaunched) {
  run([&](int rank, ncclComm_t& comm) {
    Sum sum{rank};
    EXPECT_EQ(sum.begin(comm), ncclInProgress);
    EXPECT_EQ(settle(comm), ncclSuccess);
    EXPECT_EQ(sum.value(), kRanks);
    sum.capture_for_nothing(comm);
    EXPECT_EQ(sum.begin(comm), ncclInProgress);
    EXPECT_EQ(settle(comm), ncclSuccess);
    EXPECT_EQ(sum.value(), kRanks * kRanks);
  });
}

}  // namespace
}  // namespace emulated_cuda::test::connect_test

// The double of NCCL splits communicators as NCCL does: by colour, in the order of keys.
#include <vector>

#include "emulated_cuda/nccl/nccl_ranks.hpp"

namespace emulated_cuda::test::split_test {
namespace {

/// Ranks are threads with a device each.
class EmulatedNcclSplit : public NcclRanks {
 protected:
  /// The result of `rank` in an all-gather of rank numbers over `comm`.
  static std::vector<int> gathered(ncclComm_t comm, int rank, std::size_t ranks) {
    const TestStream stream{rank};
    (void)cudaSetDevice(rank);
    const DeviceNumbers<int> mine{1};
    const DeviceNumbers<int> all{ranks};
    (void)cudaMemcpyAsync(mine.data(), &rank, sizeof rank, cudaMemcpyHostToDevice, stream);
    // The dtype does not matter: only bytes move.
    (void)ncclAllGather(mine.data(), all.data(), 1, ncclFloat32, comm, stream);
    EXPECT_EQ(settle(comm), ncclSuccess);
    return all.read(stream);
  }
};

TEST_F(EmulatedNcclSplit, MakesACommunicatorOfEachColourInTheOrderOfKeys) {
  run([](int rank, ncclComm_t comm) {
    ncclComm_t group = comm;
    ncclConfig_t config = config_of(0);
    const int color = rank == 2 ? NCCL_SPLIT_NOCOLOR : 7;
    ASSERT_EQ(ncclCommSplit(comm, color, -rank, &group, &config), ncclInProgress);
    ASSERT_EQ(settle(comm), ncclSuccess);
    if (rank == 2) {
      EXPECT_EQ(group, nullptr);
    } else {
      ASSERT_EQ(settle(group), ncclSuccess);
      EXPECT_EQ(gathered(group, rank, 3), (std::vector<int>{3, 1, 0}));
      (void)ncclCommDestroy(group);
    }
    EXPECT_EQ(gathered(comm, rank, 4), (std::vector<int>{0, 1, 2, 3}));
    // Equal keys keep the ranks' order; without a config the parent's applies.
    ASSERT_EQ(ncclCommSplit(comm, rank / 2, 5, &group, nullptr), ncclInProgress);
    ASSERT_EQ(settle(comm), ncclSuccess);
    EXPECT_EQ(gathered(group, rank, 2), (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}));
    (void)ncclCommAbort(group);
  });
}

TEST_F(EmulatedNcclSplit, RefusesWhatNcclDoes) {
  run([](int, ncclComm_t comm) {
    ncclComm_t group = nullptr;
    ncclConfig_t blocking = config_of(1);
    EXPECT_EQ(ncclCommSplit(comm, -2, 0, &group, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &group, &blocking), ncclInvalidUsage);
    EXPECT_EQ(ncclCommSplit(nullptr, 0, 0, &group, nullptr), ncclInvalidArgument);
  });
}

TEST_F(EmulatedNcclSplit, FindsRanksThatMakeCallsInstead) {
  EXPECT_DEATH(run([](int rank, ncclComm_t comm) {
                 ncclComm_t group = nullptr;
                 if (rank > 0) {
                   (void)ncclCommSplit(comm, 0, 0, &group, nullptr);
                   (void)settle(comm);
                 } else {
                   (void)gathered(comm, rank, 4);
                 }
               }),
               "splits a communicator of NCCL's on which rank 0 makes calls");
}

}  // namespace
}  // namespace emulated_cuda::test::split_test

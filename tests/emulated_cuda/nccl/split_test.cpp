// The double of NCCL splits communicators as NCCL does: by colour, in the order of keys.
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test::split_test {
namespace {

constexpr int kRanks = 4;

ncclConfig_t config_of(int blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  return config;
}

ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (result == ncclInProgress) { (void)ncclCommGetAsyncError(comm, &result); }
  return result;
}

/// Ranks that are threads, with a device each.
class EmulatedNcclSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    emulated_cuda_set_devices(kRanks);
  }
  void TearDown() override { emulated_cuda_set_devices(1); }

  static void run(const std::function<void(int rank, ncclComm_t comm)>& body) {
    ncclUniqueId id{};
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
        ncclComm_t comm = nullptr;
        ncclConfig_t config = config_of(0);
        (void)ncclCommInitRankConfig(&comm, kRanks, id, rank, &config);
        ASSERT_EQ(settle(comm), ncclSuccess);
        body(rank, comm);
        (void)ncclCommDestroy(comm);
      });
    }
    for (std::thread& thread : threads) { thread.join(); }
  }

  /// What `rank` is given where every rank of `comm` gives its number.
  static std::vector<int> gathered(ncclComm_t comm, int rank, std::size_t ranks) {
    const TestStream stream{rank};
    (void)cudaSetDevice(rank);
    const DeviceNumbers<int> mine{1};
    const DeviceNumbers<int> all{ranks};
    (void)cudaMemcpyAsync(mine.data(), &rank, sizeof rank, cudaMemcpyHostToDevice, stream);
    // Four bytes are four bytes.
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
    // Keys that are equal leave ranks in their order; without a config it is the parent's.
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

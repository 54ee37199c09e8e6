#pragma once

#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test {

inline ncclConfig_t config_of(int blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  return config;
}

inline ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t result = ncclInternalError;
  (void)ncclCommGetAsyncError(comm, &result);
  return result;
}

/// Waits for the operation in progress on `comm` and returns its result.
inline ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (result == ncclInProgress) {
    result = state_of(comm);
    std::this_thread::yield();
  }
  return result;
}

/// Ranks of one communicator of NCCL's double: threads with a device each.
class NcclRanks : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    emulated_cuda_set_devices(kRanks);
  }
  void TearDown() override { emulated_cuda_set_devices(1); }

  /// `body` may end the communicator, and must then set it to null.
  static void run(const std::function<void(int rank, ncclComm_t& comm)>& body) {
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
        if (comm != nullptr) { (void)ncclCommDestroy(comm); }
      });
    }
    for (std::thread& thread : threads) { thread.join(); }
  }
};

}  // namespace emulated_cuda::test

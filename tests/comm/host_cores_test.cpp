// The number of threads that a rank computes with on the host.
#include "world/host_cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::host_cores_test {
namespace {

std::vector<int> cores(int first, int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::vector<int> threads_of_all(const std::vector<world::HostCores>& ranks, int asked = 0) {
  std::vector<int> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.push_back(host_threads(asked, ranks, static_cast<int>(rank)));
  }
  return threads;
}

TEST(HostCores, RanksThatMayUseTheSameCoresDivideThem) {
  for (int count = 1; count <= 40; ++count) {
    for (int ranks = 1; ranks <= 12; ++ranks) {
      const std::vector<world::HostCores> all(static_cast<std::size_t>(ranks),
                                              {"a", cores(3, count)});
      EXPECT_EQ(threads_of_all(all), std::vector<int>(all.size(), std::max(1, count / ranks)))
          << count << " cores, " << ranks << " ranks";
    }
  }
}

TEST(HostCores, RanksBoundToCoresOfTheirOwnHaveAllOfThese) {
  EXPECT_EQ(threads_of_all({{"a", cores(0, 8)}, {"a", cores(8, 4)}, {"a", cores(12, 1)}}),
            (std::vector<int>{8, 4, 1}));
}

TEST(HostCores, EveryCoreIsAssignedSeparately) {
  // Two ranks on one half of a machine, one on the other half, and one on all of it.
  const std::vector<world::HostCores> ranks{
      {"a", cores(0, 6)}, {"a", cores(0, 6)}, {"a", cores(6, 6)}, {"a", cores(0, 12)}};
  EXPECT_EQ(threads_of_all(ranks), (std::vector<int>{2, 2, 3, 5}));
}

TEST(HostCores, OtherMachinesHaveCoresOfTheirOwn) {
  const std::vector<world::HostCores> ranks{
      {"a", cores(0, 8)}, {"b", cores(0, 8)}, {"a", cores(0, 8)}};
  EXPECT_EQ(threads_of_all(ranks), (std::vector<int>{4, 8, 4}));
}

TEST(HostCores, ARequestedNumberIsTaken) {
  EXPECT_EQ(threads_of_all({{"a", cores(0, 2)}, {"a", cores(0, 2)}}, 7), (std::vector<int>{7, 7}));
}

TEST(HostCores, ADeviceLimitsItsThreads) {
  EXPECT_EQ(threads_of_all({{"a", cores(0, 1000)}}),
            (std::vector<int>{CpuDeviceOptions::kMostThreads}));
}

TEST(HostCores, AreReportedUnchanged) {
  for (const std::vector<int>& some :
       {cores(0, 1), cores(0, 64), std::vector<int>{1, 2, 3, 7, 9, 10}, std::vector<int>{65535}}) {
    const world::HostCores told = world::decode_cores(world::encode({"a machine", some}));
    EXPECT_EQ(told.machine, "a machine");
    EXPECT_EQ(told.cores, some);
  }
  const world::HostCores own = world::own_cores();
  EXPECT_EQ(own.machine, machine_id());
  EXPECT_FALSE(own.cores.empty());
  EXPECT_TRUE(std::ranges::is_sorted(own.cores));
}

TEST(HostCores, RefusesMalformedText) {
  const std::string text = world::encode({"a", cores(0, 4)});
  EXPECT_THROW((void)world::decode_cores(text.substr(0, text.size() - 1)), CommError);
  EXPECT_THROW((void)world::decode_cores(world::encode({"a", {-3}})), CommError);
  EXPECT_THROW((void)world::decode_cores(world::encode({"a", {1 << 16}})), CommError);
  EXPECT_THROW((void)world::decode_cores(world::encode({"a", {5, 3}})), CommError);
}

}  // namespace
}  // namespace tessera::host_cores_test

#include "comm/control/rank_names.hpp"

#include <gtest/gtest.h>

namespace tessera::rank_names_test {
namespace {

TEST(RankNames, AreNumbersUntilThereIsAMesh) {
  comm::RankNames names;
  EXPECT_EQ(names.of(5), "rank 5");
  EXPECT_EQ(names.of(std::vector{5}), "rank 5");
  EXPECT_EQ(names.of(std::vector{1, 2, 5}), "ranks 1, 2, 5");
  names.arrange([](int rank) { return "shard " + std::to_string(rank / 2); });
  EXPECT_EQ(names.of(5), "rank 5 (shard 2)");
  EXPECT_EQ(names.of(std::vector{1, 2, 5}), "ranks 1 (shard 0), 2 (shard 1), 5 (shard 2)");
}

}  // namespace
}  // namespace tessera::rank_names_test

#include "comm/mpi/mpi_tags.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tessera::mpi_tags_test {
namespace {

// MPI guarantees at least 32,768 tags; libraries have many more.
constexpr int kFewest = 32'768;
constexpr int kMany = 1 << 30;

TEST(MpiTags, ConcurrentBatchesHaveDistinctTags) {
  for (const int tags : {kFewest, kFewest + 1000, kMany}) {
    std::set<int> seen;
    for (int channel = 0; channel < comm::channels_of(tags); ++channel) {
      for (std::uint64_t sequence = 1'000'000'000; sequence < 1'000'000'500; sequence += 7) {
        const int tag = comm::batch_tag(channel, sequence, tags);
        EXPECT_GE(tag, 0);
        EXPECT_LT(tag, tags);
        EXPECT_TRUE(seen.insert(tag).second) << channel << " " << sequence;
      }
    }
  }
}

TEST(MpiTags, HasTagsForSplitChannels) {
  EXPECT_EQ(comm::channels_of(kFewest), 64);
  EXPECT_EQ(comm::channels_of(kMany), 4096);
}

}  // namespace
}  // namespace tessera::mpi_tags_test

#include "comm/stream_copy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tessera/world/run.hpp"

namespace tessera::stream_copy_test {
namespace {

constexpr std::size_t kGuard = 64;

// Without a period that could hide a wrong copy.
std::vector<unsigned char> pattern(std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  std::uint32_t state = 1;
  for (unsigned char& value : data) {
    state = state * 1'664'525U + 1'013'904'223U;
    value = static_cast<unsigned char>(state >> 24);
  }
  return data;
}

/// Checks `bytes` copied from `from` to `to` bytes off alignment, and the memory around them.
void check_copy(std::size_t bytes, std::size_t to, std::size_t from) {
  const std::vector<unsigned char> source = pattern(bytes + from + 1);  // never empty
  std::vector<unsigned char> target(bytes + to + 3 * kGuard, 0xA5);
  void* aligned = target.data();
  std::size_t space = target.size();
  ASSERT_NE(std::align(kGuard, bytes + to + kGuard, aligned, space), nullptr);
  auto* const out = static_cast<unsigned char*>(aligned) + to;

  std::vector<unsigned char> expected = target;
  std::memcpy(expected.data() + (out - target.data()), source.data() + from, bytes);
  comm::stream_copy(out, source.data() + from, bytes);
  ASSERT_EQ(target, expected) << bytes << " bytes, " << to << " and " << from
                              << " off the beginning of a line";
}

TEST(StreamCopy, WritesTheBytesAndNoOthersAtAnyAlignment) {
  for (const std::size_t bytes : {0, 1, 3, 63, 64, 65, 255, 256, 257, 319, 320, 511, 1000, 4099}) {
    for (std::size_t to = 0; to < 64; ++to) {
      for (const std::size_t from : {0, 1, 4, 31, 32, 63}) {
        ASSERT_NO_FATAL_FAILURE(check_copy(bytes, to, from));
      }
    }
  }
}

TEST(StreamCopy, EverySizeUpToSomeBlocks) {
  for (std::size_t bytes = 0; bytes <= 1100; ++bytes) {
    ASSERT_NO_FATAL_FAILURE(check_copy(bytes, 4, 8));
  }
}

TEST(StreamCopy, ALargeArray) {
  check_copy((std::size_t{3} << 20) + 5, 60, 4);
}

/// The value of rank `rank` at `i`: whole numbers, so that sums are exact.
float value(int rank, std::size_t i) {
  return static_cast<float>((i * 31 + static_cast<std::size_t>(rank)) % 1021);
}

// The conformance suite stays below kStreamFrom. Pieces here end within a cache line.
TEST(StreamCopy, CollectivesOfLargeTensorsMoveTheSameNumbers) {
  constexpr std::size_t part = comm::kStreamFrom / sizeof(float) / 2 + 7;
  run_ranks(2, [&](World& world) {
    const int rank = world.rank();
    std::vector<float> shard(part), gathered(2 * part), summed(2 * part), sent(2 * part);
    for (std::size_t i = 0; i < part; ++i) { shard[i] = value(rank, i); }
    for (std::size_t i = 0; i < 2 * part; ++i) { summed[i] = sent[i] = value(rank, i); }
    const auto view = [](std::vector<float>& x) { return View{x.data(), std::ssize(x)}; };
    Batch batch{"large"};
    batch.all_gather(view(shard), view(gathered)).all_reduce(view(summed)).broadcast(view(sent), 1);
    const Channel channel = world.gather_channel();
    channel.communicator.submit(std::move(batch), channel.stream);
    channel.stream.wait();

    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 2 * part; ++i) {
      wrong += gathered[i] != (i < part ? value(0, i) : value(1, i - part));
      wrong += summed[i] != value(0, i) + value(1, i);
      wrong += sent[i] != value(1, i);
    }
    EXPECT_EQ(wrong, 0U) << "on rank " << rank;
  });
}

}  // namespace
}  // namespace tessera::stream_copy_test

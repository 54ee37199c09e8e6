#include "tessera/data/loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"

namespace tessera::loader_test {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

// Token i has the value i, so a batch shows where it was read.
class Counting : public TokenSource {
 public:
  explicit Counting(std::int64_t size) : size_{size} {}
  std::int64_t size() const noexcept override { return size_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::iota(out.begin(), out.end(), static_cast<std::int32_t>(first));
  }

 private:
  std::int64_t size_;
};

Tokens count_from(std::int32_t first, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(TokenLoader, StepKTrainsOnTheWindowsOfTheKthGlobalBatch) {
  constexpr std::int64_t kSeq = 5;
  constexpr int kRanks = 2;
  const auto source = std::make_shared<Counting>(1 + kSeq * 26);  // two windows are left over
  SamplerOptions options{.batch = 3, .ranks = kRanks, .accumulate = 2, .shuffle = Shuffle::off};
  for (options.rank = 0; options.rank < kRanks; ++options.rank) {
    TokenLoader loader{source, kSeq, options};
    for (int step = 0; step < 5; ++step) {  // two steps per epoch: ends in the third epoch
      for (int micro = 0; micro < 2; ++micro) {
        const TokenBatch batch = loader.next();
        const int window = step % 2 * 12 + micro * 6 + options.rank * 3;
        const auto first = static_cast<std::int32_t>(window * kSeq);
        ASSERT_EQ(batch.inputs, count_from(first, 15)) << "step " << step;
        ASSERT_EQ(batch.targets, count_from(first + 1, 15)) << "step " << step;
      }
    }
  }
}

TEST(TokenLoader, ShuffledBatchesAreTheSamplersWindows) {
  constexpr std::int64_t kSeq = 4;
  const auto source = std::make_shared<Counting>(200);
  SamplerOptions options{.batch = 2, .ranks = 3, .rank = 1, .accumulate = 2, .seed = 9};
  TokenLoader loader{source, kSeq, options};
  options.windows = window_count(*source, kSeq);
  DistributedSampler sampler{options};
  for (std::int64_t step = 0; step < 2 * sampler.steps_per_epoch(); ++step) {
    sampler.set_epoch(step / sampler.steps_per_epoch());
    for (int micro = 0; micro < 2; ++micro) {
      const auto windows = sampler.windows(step % sampler.steps_per_epoch(), micro);
      const TokenBatch batch = loader.next();
      for (std::size_t row = 0; row < windows.size(); ++row) {
        ASSERT_EQ(batch.inputs[row * 4], windows[row] * kSeq);
        ASSERT_EQ(batch.targets[row * 4 + 3], windows[row] * kSeq + kSeq);
      }
    }
  }
}

TEST(TokenLoader, StartsAtAnyStep) {
  const auto source = std::make_shared<Counting>(101);
  const SamplerOptions options{.batch = 2, .accumulate = 2};  // 10 windows: two steps per epoch
  TokenLoader from_start{source, 10, options};
  TokenLoader from_third{source, 10, options, 3};
  for (int micro = 0; micro < 6; ++micro) { (void)from_start.next(); }
  for (int micro = 0; micro < 8; ++micro) {
    const TokenBatch expected = from_start.next();
    const TokenBatch actual = from_third.next();
    ASSERT_EQ(expected.inputs, actual.inputs);
    ASSERT_EQ(expected.targets, actual.targets);
  }
}

TEST(TokenLoader, TheLastTokenOfTheDataIsTheLastTarget) {
  const auto source = std::make_shared<Counting>(9);
  TokenLoader loader{source, 4, {.batch = 2, .shuffle = Shuffle::off}};
  EXPECT_EQ(loader.next().targets.back(), 8);
}

TEST(WindowCount, CountsWindowsWithATargetForEachToken) {
  EXPECT_EQ(window_count(Counting{0}, 4), 0);
  EXPECT_EQ(window_count(Counting{4}, 4), 0);
  EXPECT_EQ(window_count(Counting{5}, 4), 1);
  EXPECT_EQ(window_count(Counting{8}, 4), 1);
  EXPECT_EQ(window_count(Counting{9}, 4), 2);
  EXPECT_EQ(window_count(Counting{9}, 0), 0);
}

TEST(TokenLoader, ReportsAvailableAndNeededTokens) {
  const auto refusal = [](std::int64_t size, std::int64_t seq, const SamplerOptions& options) {
    return message_of<ConfigError>(
        [&] { TokenLoader{std::make_shared<Counting>(size), seq, options}; });
  };
  EXPECT_THAT(refusal(1024, 128, {.batch = 2, .ranks = 4}),
              AllOf(HasSubstr("has 1024 tokens"), HasSubstr("need 1025")));
  EXPECT_NO_THROW((TokenLoader{std::make_shared<Counting>(1025), 128, {.batch = 2, .ranks = 4}}));
  EXPECT_THAT(refusal(4, 4, {.last = LastBatch::wrap}), HasSubstr("need 5"));
  EXPECT_THAT(refusal(100, 0, {}), HasSubstr("sequence length must be at least 1"));
  EXPECT_THAT(refusal(100, 8, {.batch = 0}), HasSubstr("batch must be at least 1"));
  EXPECT_THAT(refusal(100, INT64_MAX, {.batch = 1 << 20}), HasSubstr("too little"));
}

TEST(TokenLoader, TheRefusalNamesTheFile) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("short.txt", "too short");
  EXPECT_THAT(message_of<ConfigError>([&] { TokenLoader{open_bytes(path), 128, {}}; }),
              HasSubstr(path.string() + ": too little data"));
}

TEST(TokenLoader, RefusesNoSourceAndStepsBeforeTheFirst) {
  EXPECT_THROW((TokenLoader{nullptr, 4, {}}), ContractError);
  EXPECT_THROW((TokenLoader{std::make_shared<Counting>(100), 4, {}, -1}), ContractError);
}

// Fails after `good_reads` reads.
class Failing final : public Counting {
 public:
  explicit Failing(int good_reads) : Counting{1000}, good_reads_{good_reads} {}
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    if (reads_++ == good_reads_) { throw FormatError("disk on fire"); }
    Counting::read(first, out);
  }

 private:
  int good_reads_;
  mutable int reads_ = 0;
};

TEST(TokenLoader, AReadErrorComesAfterTheGoodBatchesAndPersists) {
  for (int good = 0; good < 8; ++good) {
    TokenLoader loader{std::make_shared<Failing>(good), 8, {}};
    for (int i = 0; i < good; ++i) { ASSERT_EQ(loader.next().inputs.size(), 8U); }
    EXPECT_EQ(message_of<FormatError>([&] { (void)loader.next(); }), "disk on fire");
    EXPECT_EQ(message_of<FormatError>([&] { (void)loader.next(); }), "disk on fire");
  }
}

TEST(TokenLoader, CanBeDestroyedAfterAnUnreadFailure) {
  for (int round = 0; round < 50; ++round) {
    const TokenLoader loader{std::make_shared<Failing>(round % 4), 8, {}};
  }
}

TEST(TokenLoader, CanBeDestroyedAtAnyTime) {
  const auto source = std::make_shared<Counting>(1000);
  for (int taken = 0; taken < 100; ++taken) {
    TokenLoader loader{source, 8, {.batch = 2, .accumulate = 3}};
    for (int i = 0; i < taken % 7; ++i) { ASSERT_EQ(loader.next().inputs.size(), 16U); }
  }
}

// Counts reads, lets a test wait until all allowed reads are done, and records reads beyond them.
class Gauged final : public Counting {
 public:
  explicit Gauged(int allowed) : Counting{1000}, allowed_{allowed} {}

  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    Counting::read(first, out);
    const std::lock_guard lock{mutex_};
    if (++reads_ > allowed_) { overran_ = true; }
    changed_.notify_all();
  }
  void allow_one_more() {
    const std::lock_guard lock{mutex_};
    ++allowed_;
  }
  [[nodiscard]] bool wait_until_all_allowed_were_made() const {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::seconds{30}, [&] { return reads_ >= allowed_; });
  }
  [[nodiscard]] bool overran() const {
    const std::lock_guard lock{mutex_};
    return overran_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int reads_ = 0;
  mutable bool overran_ = false;
  int allowed_;
};

// The loader reads at most four batches ahead of `next`: three ready, one in progress.
TEST(TokenLoader, ReadsAheadWithinABound) {
  const auto source = std::make_shared<Gauged>(4);
  TokenLoader loader{source, 8, {}};
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(source->wait_until_all_allowed_were_made());
    ASSERT_FALSE(source->overran());
    source->allow_one_more();
    (void)loader.next();
  }
  ASSERT_TRUE(source->wait_until_all_allowed_were_made());
  EXPECT_FALSE(source->overran());
}

TEST(TokenLoader, TrainsOnTextFromDisk) {
  const test::TemporaryFolder folder;
  folder.write("1", "to be ");
  folder.write("2", "or not");
  TokenLoader loader{open_bytes(folder.path()), 5, {.batch = 2, .shuffle = Shuffle::off}};
  const TokenBatch batch = loader.next();
  EXPECT_EQ(std::string(batch.inputs.begin(), batch.inputs.end()), "to be or n");
  EXPECT_EQ(std::string(batch.targets.begin(), batch.targets.end()), "o be or no");
}

}  // namespace
}  // namespace tessera::loader_test
